package httpapi

import (
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
	srv.WriteTimeout /= 1000 // nobody wants to wait; none stays none
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
