package client

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tunnels are closed also while a goroutine reads from them, and no new ones open.
func TestEndOfLeaseClosesItsTunnels(t *testing.T) {
	site, trusting := serveSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "9")
		_, _ = w.Write([]byte("rea"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	proxy := serveProxy(t, forwardTo(site))
	a := &api{proxyURL: "http://u:CANARY@" + proxy}
	c := a.client(t)
	c.transport = trusting
	l, err := c.Acquire(t.Context(), Want{})
	require.NoError(t, err)
	resp, err := l.HTTPClient().Get("https://site.example/")
	require.NoError(t, err)
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(resp.Body)
		read <- err
	}()
	require.NoError(t, l.Release(t.Context()))
	assert.Error(t, <-read)
	_ = resp.Body.Close()
	l.tunnels.mu.Lock()
	assert.Empty(t, l.tunnels.open)
	l.tunnels.mu.Unlock()
	_, err = l.HTTPClient().Get("https://site.example/")
	require.ErrorIs(t, err, ErrReleased)
	assert.NotContains(t, err.Error(), "CANARY")
}
