package ops

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, s *Server, path string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec
}

func TestHandler(t *testing.T) {
	var notReady error
	s := &Server{Registry: NewRegistry(), Ready: func() error { return notReady }, Log: slog.New(slog.DiscardHandler)}

	assert.Equal(t, http.StatusOK, get(t, s, "/livez").Code)
	assert.Equal(t, http.StatusOK, get(t, s, "/readyz").Code)
	assert.Contains(t, get(t, s, "/metrics").Body.String(), "go_goroutines")
	assert.Contains(t, get(t, s, "/metrics").Body.String(), "proxy_operator_build_info{")

	notReady = errors.New("cache not synced")
	assert.Equal(t, http.StatusOK, get(t, s, "/livez").Code, "liveness does not depend on readiness")
	rec := get(t, s, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
	assert.Contains(t, rec.Body.String(), "cache not synced")
}

func TestDebugIsForThisMachineAlone(t *testing.T) {
	s := &Server{Registry: NewRegistry(), Log: slog.New(slog.DiscardHandler)}
	assert.Equal(t, http.StatusNotFound, get(t, s, "/debug/x").Code, "without a handler")
	s.Debug = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for from, want := range map[string]int{
		"127.0.0.1:1": http.StatusOK, "127.9.8.7:1": http.StatusOK, "[::1]:1": http.StatusOK, "[::ffff:127.0.0.1]:1": http.StatusOK,
		"10.0.0.1:1": http.StatusForbidden, "[2001:db8::1]:1": http.StatusForbidden, "": http.StatusForbidden, "@": http.StatusForbidden,
	} {
		rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/debug/x", nil)
		req.RemoteAddr = from
		req.Header.Set("X-Forwarded-For", "127.0.0.1")
		s.Handler().ServeHTTP(rec, req)
		assert.Equal(t, want, rec.Code, from)
	}
}

func TestRunServesUntilItIsTold(t *testing.T) {
	logs := &lines{got: make(chan string, 1)}
	s := &Server{Addr: "127.0.0.1:0", Registry: NewRegistry(), Ready: func() error { return nil }, Log: slog.New(slog.NewJSONHandler(logs, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()

	var entry struct{ Msg, Addr string }
	require.NoError(t, json.Unmarshal([]byte(<-logs.got), &entry))
	require.Equal(t, "ops endpoint listening", entry.Msg)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + entry.Addr + "/readyz")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, resp.Body.Close())

	cancel()
	assert.NoError(t, <-ran)
}

// lines hands on the first line of a log.
type lines struct {
	once sync.Once
	got  chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.once.Do(func() { l.got <- string(p) })
	return len(p), nil
}

func TestRunNamesTheFlagOfATakenAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	s := &Server{Addr: taken.Addr().String(), Registry: NewRegistry(), Ready: func() error { return nil }, Log: slog.New(slog.DiscardHandler)}
	assert.ErrorContains(t, s.Run(t.Context()), "--ops-addr "+taken.Addr().String())
}
