package ops

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

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

	notReady = errors.New("cache not synced")
	assert.Equal(t, http.StatusOK, get(t, s, "/livez").Code, "liveness does not depend on readiness")
	rec := get(t, s, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, rec.Code)
	assert.Contains(t, rec.Body.String(), "cache not synced")
}
