package client

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrorsOmitTheDiscoveryURL(t *testing.T) {
	for _, u := range []string{"http://u:CANARY@", "ftp://u:CANARY@host", "http://u:CANARY@host:port"} {
		_, err := New(Config{URL: u})
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "CANARY")
	}
}

// Programs replace http.DefaultTransport by wrappers, for traces and tests.
func TestDefaultTransportOfAnotherType(t *testing.T) {
	before := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = before })
	http.DefaultTransport = &api{}
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{URL: "http://discovery.invalid", HTTPClient: &http.Client{Transport: &api{}}})
		require.NoError(t, err)
		l, err := c.Acquire(t.Context(), Want{})
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
	})
}
