package client

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzGrants: a lease of any bytes is renewed at a bounded rate, and can be released.
func FuzzGrants(f *testing.F) {
	const good = `{"leaseID":"ID","proxy":{"name":"a","namespace":"crawl"},"proxyURL":"http://u:p@127.0.0.1:1","expiresAt":"2000-01-01T00:05:00Z","ttlSeconds":300,"fencingToken":7}`
	f.Add([]byte(good), []byte(good), "Sat, 01 Jan 2000 00:00:00 GMT")
	f.Add([]byte(good), []byte(`{"leaseID":"ID","expiresAt":"9999-12-31T23:59:59Z"}`), "")
	f.Add([]byte(`{"leaseID":"..","proxyURL":"http://h","ttlSeconds":9223372036854775807}`), []byte(`{}`), "x")
	f.Add([]byte(`{"leaseID":"a/b?c","proxyURL":"socks5://[::1%25a]:x","ttlSeconds":1,"expiresAt":"0001-01-01T00:00:00Z"}`), []byte(`null`), "Sat, 01 Jan 0000 00:00:00 GMT")
	f.Fuzz(func(t *testing.T, granted, renewed []byte, date string) {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{granted: granted, renewed: renewed, date: date}
			c, err := New(Config{URL: "http://discovery.invalid/", HTTPClient: &http.Client{Transport: w}, Transport: &http.Transport{}})
			require.NoError(t, err)
			l, err := c.Acquire(t.Context(), Want{Patience: -1})
			if err != nil {
				require.NotEmpty(t, err.Error())
				return
			}
			require.NotEmpty(t, l.ID)
			require.NotEmpty(t, l.ProxyURL.Host)
			require.Greater(t, l.ttl, time.Duration(0))
			time.Sleep(10 * time.Second)
			if l.Err() != nil {
				require.ErrorIs(t, l.Err(), ErrLost)
			}
			require.LessOrEqual(t, w.renewals, 250, "renewals in 10 s")
			require.NoError(t, l.Release(t.Context()))
		})
	})
}

// wire is a transport that returns arbitrary bytes.
type wire struct {
	granted, renewed []byte
	date             string
	renewals         int
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := http.StatusNoContent, []byte(nil)
	switch {
	case r.URL.Path == "/v1/leases":
		status, body = http.StatusCreated, w.granted
	case strings.HasSuffix(r.URL.Path, "/renew"):
		w.renewals++
		status, body = http.StatusOK, w.renewed
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Date": {w.date}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}
