package httpapi

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunLetsARequestInFlightFinish(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "finished")
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- Run(ctx, NewServer(h, slog.New(slog.DiscardHandler)), ln) }()

	body := make(chan string, 1)
	go func() {
		defer close(body)
		tr := &http.Transport{DisableKeepAlives: true}
		resp, err := (&http.Client{Transport: tr}).Get("http://" + ln.Addr().String())
		if err != nil {
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		body <- string(b)
	}()
	<-entered
	cancel()
	close(release)
	assert.Equal(t, "finished", <-body)
	assert.NoError(t, <-ran)
}

func TestAClientThatNeverReadsIsCutOff(t *testing.T) {
	failed := make(chan error, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 1<<20); ; {
			if _, err := w.Write(piece); err != nil {
				failed <- err
				return
			}
		}
	})
	srv := NewServer(h, slog.New(slog.DiscardHandler))
	srv.WriteTimeout /= 1000 // a test cannot wait; 0 stays 0
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- Run(ctx, srv, ln) }()

	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\n\r\n")
	require.NoError(t, err)

	select {
	case err := <-failed:
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	case <-time.After(10 * time.Second):
		t.Error("the handler is still writing")
	}
	require.NoError(t, conn.Close())
	cancel()
	assert.NoError(t, <-ran)
}

func TestRunReportsADeadListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	err = Run(context.Background(), NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler)), ln)
	assert.ErrorContains(t, err, "serve on 127.0.0.1:")
}

// During the drain a kept-alive connection is still served; responses ask the client to
// close it.
func TestRunDrainingClosesKeptAliveConnections(t *testing.T) {
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

// A response during the drain asks the client to close the connection, also if its request
// came before. The server would otherwise close the connection at shutdown, with the next
// request in flight.
func TestRunDrainingClosesLongPolls(t *testing.T) {
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
