package httpserve

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
	go func() { ran <- RunDraining(ctx, NewServer(h, slog.New(slog.DiscardHandler)), ln, 300*time.Millisecond) }()
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

func TestRunDrainingForNoTimeIsRun(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, RunDraining(ctx, NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler)), ln, 0))
}
