package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("refused")

func shell(log *bytes.Buffer) *Shell {
	table := Table{{Is: TooLarge, Status: 413}, {Is: Class(ErrMediaType), Status: 415}, {Is: Class(errRefused), Status: 400, Code: "refused"}}
	return &Shell{
		MaxBody: 8,
		Log:     slog.New(slog.NewTextHandler(log, nil)),
		Error: func(_ *http.Request, err error) Response {
			rule := table.Find(err)
			return Response{Status: rule.Status, Body: map[string]string{"error": rule.Code, "message": "<" + rule.Code + ">"}}
		},
	}
}

func TestServeAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		h      Handler
		body   string
		status int
		want   string
		kind   string
	}{
		"json":              {func(*http.Request) (Response, error) { return Response{Status: 201, Body: []int{1}}, nil }, "", 201, "[1]\n", "application/json"},
		"bytes as they are": {func(*http.Request) (Response, error) { return Text(200, "ok"), nil }, "", 200, "ok", "text/plain; charset=utf-8"},
		"no body":           {func(*http.Request) (Response, error) { return Response{Status: 204}, nil }, "", 204, "", ""},
		"error by table":    {func(*http.Request) (Response, error) { return Response{}, fmt.Errorf("x: %w", errRefused) }, "", 400, "{\"error\":\"refused\",\"message\":\"<refused>\"}\n", "application/json"},
		"media type":        {func(r *http.Request) (Response, error) { return Response{}, WantJSON(r) }, "", 415, "{\"error\":\"\",\"message\":\"<>\"}\n", "application/json"},
		"body too large": {func(r *http.Request) (Response, error) {
			_, err := io.ReadAll(r.Body)
			return Response{}, err
		}, "123456789", 413, "{\"error\":\"\",\"message\":\"<>\"}\n", "application/json"},
		"panic": {func(*http.Request) (Response, error) { panic("boom") }, "", 500, "{\"error\":\"\",\"message\":\"<>\"}\n", "application/json"},
		"cannot be encoded": {func(*http.Request) (Response, error) {
			return Response{Status: 200, Header: http.Header{"X-Lost": {"1"}}, Body: func() {}}, nil
		}, "", 500, "{\"error\":\"\",\"message\":\"<>\"}\n", "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			w := httptest.NewRecorder()
			s := shell(&log)
			var answered []int
			s.Answered = func(_ *http.Request, status int, _ time.Duration) { answered = append(answered, status) }
			s.Serve(c.h).ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(c.body)))
			assert.Equal(t, []int{c.status}, answered)
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, c.want, w.Body.String())
			assert.Equal(t, c.kind, w.Header().Get("Content-Type"))
			assert.Empty(t, w.Header().Get("X-Lost"), "headers of an answer that cannot be encoded")
			assert.Equal(t, name == "panic", strings.Contains(log.String(), "boom"))
		})
	}
}

func TestServeWhenTheErrorCannotBeEncoded(t *testing.T) {
	var log bytes.Buffer
	s := shell(&log)
	s.Error = func(*http.Request, error) Response { return Response{Status: 400, Body: func() {}} }
	w := httptest.NewRecorder()
	s.Serve(func(*http.Request) (Response, error) { return Response{}, errRefused }).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	assert.Equal(t, 500, w.Code)
	assert.Equal(t, "internal error\n", w.Body.String())
}

func TestServePassesAnAbort(t *testing.T) {
	var log bytes.Buffer
	h := shell(&log).Serve(func(*http.Request) (Response, error) { panic(http.ErrAbortHandler) })
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) })
}

func TestRetryAfterRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "1", -time.Second: "1", time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2"} {
		assert.Equal(t, want, RetryAfter(d).Get("Retry-After"), d)
	}
}

func TestEncodeLeavesURLsReadable(t *testing.T) {
	b, err := Encode("http://a&b")
	require.NoError(t, err)
	assert.Equal(t, "\"http://a&b\"\n", string(b))
}
