package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const uid = "0b6ad3a8-5a44-4c3e-9d4c-0d7c6a7b1c01"

func TestRoutesReachTheBackend(t *testing.T) {
	b := &fakeBackend{out: adapter.Instance{State: adapter.StateRunning, Action: adapter.ActionNone, InstanceID: "7"}}
	s, seen := newServer(b)
	rec := do(s, "PUT", path(), body(t, nil))
	assert.Equal(t, 200, rec.Code)
	assert.JSONEq(t, `{"state":"Running","action":"None","instanceID":"7"}`, rec.Body.String())
	assert.Equal(t, 200, do(s, "DELETE", path()+"?uid="+uid+"&providerID=zones/z/instances/n", "").Code)
	rec = do(s, "GET", "/v1/instances", "")
	assert.JSONEq(t, `{"providers":[],"instances":[]}`, rec.Body.String())
	name := v1alpha1.InstanceName(types.UID(uid))
	assert.Equal(t, []string{"put gcp-eu " + name + " " + uid, "delete gcp-eu " + name + " " + uid + " zones/z/instances/n"}, b.got)
	assert.Len(t, seen.answers, 3)
}

func TestErrorsOfTheBackend(t *testing.T) {
	tests := map[string]struct {
		err    error
		status int
		code   string
	}{
		"not ready":        {adapter.ErrNotReady, 503, adapter.CodeNotReady},
		"unknown provider": {adapter.ErrUnknownProvider, 404, adapter.CodeUnknownProvider},
		"deleted":          {adapter.ErrDeleted, 409, adapter.CodeDeleted},
		"conflict":         {adapter.ErrConflict, 409, adapter.CodeConflict},
		"provider id":      {adapter.ErrInvalid, 400, adapter.CodeInvalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, _ := newServer(&fakeBackend{err: fmt.Errorf("provider %q: %w", "p", tt.err)})
			for _, rec := range []*httptest.ResponseRecorder{do(s, "PUT", path(), body(t, nil)), do(s, "DELETE", path()+"?uid="+uid, "")} {
				assert.Equal(t, tt.status, rec.Code)
				var got adapter.ErrorBody
				require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &got))
				assert.Equal(t, tt.code, got.Error)
				assert.Contains(t, got.Message, tt.err.Error())
				if tt.status == 503 {
					assert.Equal(t, "2", rec.Header().Get("Retry-After"), "rounded up to whole seconds")
				} else {
					assert.Empty(t, rec.Header().Get("Retry-After"))
				}
			}
		})
	}
}

func TestBadRequests(t *testing.T) {
	other := "/v1/instances/gcp-eu/proxy-other"
	tests := map[string]struct {
		method, target, body string
		status               int
		code, say            string
	}{
		"no body":         {"PUT", path(), "", 400, adapter.CodeInvalid, "not a JSON object"},
		"unknown field":   {"PUT", path(), `{"a":1}`, 400, adapter.CodeInvalid, `unknown field "a"`},
		"another's name":  {"PUT", other, body(t, nil), 400, adapter.CodeInvalid, "is called"},
		"query on PUT":    {"PUT", path() + "?uid=x", body(t, nil), 400, adapter.CodeInvalid, "no query"},
		"too large":       {"PUT", path(), `{"userData":"` + strings.Repeat("x", adapter.MaxBodyBytes) + `"}`, 413, adapter.CodeTooLarge, "too large"},
		"no uid":          {"DELETE", path(), "", 400, adapter.CodeInvalid, `uid ""`},
		"uid twice":       {"DELETE", path() + "?uid=" + uid + "&uid=x", "", 400, adapter.CodeInvalid, "each once"},
		"unknown query":   {"DELETE", path() + "?uid=" + uid + "&force=1", "", 400, adapter.CodeInvalid, "want uid and providerID"},
		"broken query":    {"DELETE", path() + "?uid=%zz", "", 400, adapter.CodeInvalid, "query"},
		"other name":      {"DELETE", other + "?uid=" + uid, "", 400, adapter.CodeInvalid, "is called"},
		"long providerID": {"DELETE", path() + "?uid=" + uid + "&providerID=" + strings.Repeat("x", 513), "", 400, adapter.CodeInvalid, "513 bytes"},
		"POST":            {"POST", path(), "{}", 405, adapter.CodeMethod, "PUT or DELETE"},
		"PUT of the list": {"PUT", "/v1/instances", "{}", 405, adapter.CodeMethod, "want GET"},
		"no route":        {"GET", "/v2", "", 404, adapter.CodeNotFound, "/v1/instances"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := &fakeBackend{}
			s, seen := newServer(b)
			rec := do(s, tt.method, tt.target, tt.body)
			assert.Equal(t, tt.status, rec.Code)
			var got adapter.ErrorBody
			require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &got), "errors are JSON, always")
			assert.Equal(t, tt.code, got.Error)
			assert.Contains(t, got.Message, tt.say)
			assert.Equal(t, "application/json", rec.Header().Get("Content-Type"))
			assert.Empty(t, b.got)
			assert.Len(t, seen.answers, 1)
		})
	}
}

func TestPutWantsJSON(t *testing.T) {
	s, _ := newServer(&fakeBackend{})
	for _, kind := range []string{"", "text/plain", ";;"} {
		r := httptest.NewRequest("PUT", path(), strings.NewReader(body(t, nil)))
		r.Header.Set("Content-Type", kind)
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, r)
		assert.Equal(t, 415, rec.Code, kind)
	}
}

func TestStandbyIsNotReady(t *testing.T) {
	s, _ := newServer(nil)
	for _, rec := range []*httptest.ResponseRecorder{do(s, "PUT", path(), body(t, nil)), do(s, "DELETE", path()+"?uid="+uid, ""), do(s, "GET", "/v1/instances", "")} {
		assert.Equal(t, 503, rec.Code)
		assert.Equal(t, "2", rec.Header().Get("Retry-After"))
		assert.Contains(t, rec.Body.String(), "not the one that may act")
	}
	stop := s.Lead(&fakeBackend{out: adapter.Instance{State: adapter.StateAbsent}})
	assert.Equal(t, 200, do(s, "PUT", path(), body(t, nil)).Code)
	stop()
	assert.Equal(t, 503, do(s, "PUT", path(), body(t, nil)).Code)

	first := s.Lead(&fakeBackend{})
	s.Lead(&fakeBackend{})
	first()
	assert.Equal(t, 200, do(s, "PUT", path(), body(t, nil)).Code, "an old term's end does not end the new one")
}

// A process that was frozen past its lease still has its backend, whose cache is
// stale.
func TestBackendAfterTheLeaseExpiredIsNotUsed(t *testing.T) {
	b := &fakeBackend{}
	var lost error
	s := New(func() error { return lost }, time.Second, new(counted).Answered, slog.New(slog.DiscardHandler))
	s.Lead(b)
	assert.Equal(t, 200, do(s, "PUT", path(), body(t, nil)).Code)
	lost = errors.New("the lease ran out")
	assert.Equal(t, 503, do(s, "PUT", path(), body(t, nil)).Code)
	assert.Equal(t, 503, do(s, "GET", "/v1/instances", "").Code)
	assert.Len(t, b.got, 1)
}

func TestPanicIsA500WithoutItsText(t *testing.T) {
	var log bytes.Buffer
	s := New(func() error { return nil }, time.Second, new(counted).Answered, slog.New(slog.NewJSONHandler(&log, nil)))
	s.Lead(&fakeBackend{panic: true})
	rec := do(s, "PUT", path(), body(t, nil))
	assert.Equal(t, 500, rec.Code)
	assert.Contains(t, rec.Body.String(), adapter.CodeInternal)
	assert.NotContains(t, rec.Body.String(), "CANARY")
	assert.Contains(t, log.String(), "CANARY")
}

func TestEveryResponseIsCountedOnceWithItsStatus(t *testing.T) {
	far := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) // JSON has no such year
	b := &fakeBackend{}
	s, seen := newServer(b)
	do(s, "PUT", path(), body(t, nil))
	b.out.CreatedAt = &far
	do(s, "PUT", path(), body(t, nil))
	b.err = adapter.ErrNotReady
	do(s, "DELETE", path()+"?uid="+uid, "")
	b.panic = true
	do(s, "PUT", path(), body(t, nil))
	do(s, "POST", path(), "")
	assert.Equal(t, []string{"PUT 200", "PUT 500", "DELETE 503", "PUT 500", "other 405"}, seen.answers)
}

// The real client with the real server.
func TestClientAndServerOverASocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "adapter.sock")
	ln, err := Listen(socket)
	require.NoError(t, err)
	b := &fakeBackend{out: adapter.Instance{State: adapter.StateAbsent, Action: adapter.ActionInserting}}
	s, _ := newServer(b)
	srv := &http.Server{Handler: s.Handler()}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	c := adapter.NewClient(socket, 10*time.Second)
	defer func() { c.Close(); srv.Close(); <-served }()

	name := v1alpha1.InstanceName(types.UID(uid))
	var req adapter.PutRequest
	require.NoError(t, json.Unmarshal([]byte(body(t, nil)), &req))
	got, err := c.Put(t.Context(), "gcp-eu", name, req)
	require.NoError(t, err)
	assert.Equal(t, b.out, got)
	_, err = c.Delete(t.Context(), "gcp-eu", name, uid, "zones/z/instances/n")
	require.NoError(t, err)
	_, err = c.List(t.Context())
	require.NoError(t, err)

	b.err = adapter.ErrNotReady
	_, err = c.Put(t.Context(), "gcp-eu", name, req)
	require.ErrorIs(t, err, adapter.ErrNotReady)
	var status *adapter.StatusError
	require.ErrorAs(t, err, &status)
	assert.Equal(t, 2*time.Second, status.RetryAfter)
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	ln, err := Listen(socket)
	require.NoError(t, err)
	info, err := os.Lstat(socket)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(socketMode), info.Mode().Perm())
	_, err = Listen(socket)
	assert.ErrorContains(t, err, "another adapter listens here")

	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
	ln, err = Listen(socket)
	require.NoError(t, err, "what a killed adapter left behind")
	require.NoError(t, ln.Close())

	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	_, err = Listen(socket)
	assert.ErrorContains(t, err, "not a socket")
	_, err = Listen(filepath.Join(dir, "none", "s"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func FuzzHandler(f *testing.F) {
	f.Add("PUT", path(), []byte(body(f, nil)))
	f.Add("DELETE", path()+"?uid="+uid, []byte{})
	f.Add("GET", "/v1/instances", []byte{})
	f.Add("PUT", "/v1/instances/%2e%2e/x?%zz", []byte("null"))
	f.Fuzz(func(t *testing.T, method, target string, body []byte) {
		r, err := http.NewRequest(method, "http://x"+target, bytes.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		s, _ := newServer(&fakeBackend{out: adapter.Instance{State: adapter.StateAbsent}})
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, r)
		require.NotEqual(t, 500, rec.Code)
		if rec.Code != http.StatusMovedPermanently && rec.Code != http.StatusTemporaryRedirect {
			require.True(t, json.Valid(rec.Body.Bytes()), "%d %s", rec.Code, rec.Body)
		}
	})
}
