package httpapi

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A connection that is kept alive is answered on after the end of ctx, and told
// to go.
func TestRunDrainingSendsClientsElsewhere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	ran := make(chan error, 1)
	go func() { ran <- RunDraining(ctx, NewServer(h, slog.New(slog.DiscardHandler)), ln, 3*time.Second) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	answers := bufio.NewReader(conn)
	ask := func() *http.Response {
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		return resp
	}
	assert.False(t, ask().Close)
	cancel()
	resp := ask()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.True(t, resp.Close)
	require.NoError(t, <-ran)
	_, err = net.Dial("tcp", ln.Addr().String())
	assert.Error(t, err)
}

// An answer that comes while clients are sent elsewhere says so too, though its
// request came before. The server has not begun to shut down then, and would
// close the connection a moment later, with the next request on its way.
func TestRunDrainingSendsThoseWhoWaitElsewhere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		waits <- struct{}{}
		<-ctx.Done()
		assert.NoError(t, http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)))
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "hello")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	ran := make(chan error, 1)
	go func() { ran <- RunDraining(ctx, NewServer(h, slog.New(slog.DiscardHandler)), ln, time.Second) }()
	closes := make(chan bool, 2)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, path := range []string{"/header", "/body"} {
		go func() {
			resp, err := (&http.Client{Transport: transport}).Get("http://" + ln.Addr().String() + path)
			if assert.NoError(t, err) {
				resp.Body.Close()
			}
			closes <- err == nil && resp.Close
		}()
		<-waits
	}
	cancel()
	assert.True(t, <-closes)
	assert.True(t, <-closes)
	require.NoError(t, <-ran)
}

func TestRunDrainingForNoTimeIsRun(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, RunDraining(ctx, NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler)), ln, 0))
}
