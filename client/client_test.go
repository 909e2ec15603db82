package client

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	const date = "Sat, 01 Jan 2000 00:00:00 GMT"
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "soon": 0, "9999999999": 24 * time.Hour,
		"Sat, 01 Jan 2000 00:02:00 GMT": 2 * time.Minute, "Fri, 31 Dec 1999 00:00:00 GMT": 0,
		"Sat, 01 Jan 2050 00:00:00 GMT": 24 * time.Hour, "Saturday, 01-Jan-00 00:00:05 GMT": 5 * time.Second,
	} {
		assert.Equal(t, want, retryAfter(http.Header{"Retry-After": {text}, "Date": {date}}), text)
	}
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
		assert.Equal(t, time.Minute, retryAfter(http.Header{"Retry-After": {at}}), "without a Date")
	})
}

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
