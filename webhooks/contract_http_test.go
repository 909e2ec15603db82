package webhooks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// allHooks have the same rules.
func allHooks() []string {
	return []string{metacontroller.HookCustomize, metacontroller.HookSync, metacontroller.HookFinalize}
}

// goodBody is a request that the hook answers.
func goodBody(t testing.TB, hook string) []byte {
	t.Helper()
	r := request{proxy: proxytest.Managed(), finalizing: hook == metacontroller.HookFinalize}
	if hook == metacontroller.HookCustomize {
		return r.customizeBody(t)
	}
	return r.body(t)
}

// post calls a hook without a network.
func post(t testing.TB, h http.Handler, hook string, body io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/hooks/"+hook, body)
	req.Header = asJSON()
	h.ServeHTTP(rec, req)
	return rec
}

func TestContractEncodesBeforeHeaders(t *testing.T) {
	child := func(content object) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{{Object: content}}
	}
	for name, unsafe := range map[string]*metacontroller.Response{
		"nil":           nil,
		"nil status":    {Children: child(nil)},
		"nil children":  {Status: object{}},
		"nil child":     {Status: object{}, Children: []*unstructured.Unstructured{nil}},
		"null deep in":  {Status: object{}, Children: child(object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "a"}, "spec": list{nil}})},
		"not JSON":      {Status: object{"a": 1, "b": math.NaN()}, Children: []*unstructured.Unstructured{}},
		"not JSON, too": {Status: object{"a": 1, "b": make(chan int)}, Children: []*unstructured.Unstructured{}},
	} {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/hooks/sync", strings.NewReader("{}"))
		req.Header = asJSON()
		fixtureHooks().serve("sync", func(context.Context, io.Reader) ([]byte, error) { return unsafe.Encode() }, nil).ServeHTTP(rec, req)
		require.Equal(t, http.StatusInternalServerError, rec.Code, name)
		require.NotContains(t, rec.Body.String(), "{", "%s: no part of the answer", name)
		require.Equal(t, strconv.Itoa(rec.Body.Len()), rec.Header().Get("Content-Length"))
	}
}

func TestContractPanicIs500(t *testing.T) {
	o := testOptions()
	var logs bytes.Buffer
	o.Registry, o.Log = prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&logs, nil))
	h := New(o)
	for name, hook := range map[string]hookFunc{
		"panic": func(context.Context, io.Reader) ([]byte, error) { panic("index out of range") },
		"nil":   func(context.Context, io.Reader) ([]byte, error) { return []byte(noProxy().Name), nil },
	} {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/hooks/sync", strings.NewReader("{}"))
		req.Header = asJSON()
		h.serve(name, hook, nil).ServeHTTP(rec, req)
		assert.Equal(t, http.StatusInternalServerError, rec.Code)
		assert.Contains(t, rec.Body.String(), "a defect of webhooks")
		assert.NotContains(t, rec.Body.String(), "index out of range", "it may quote anything")
		assert.InDelta(t, 1, testutil.ToFloat64(h.metrics.requests.WithLabelValues(name, "500")), 0)
	}
	assert.Contains(t, logs.String(), "contract_http_test.go", "the stack is logged")
}

func TestContractNotReadyIs429(t *testing.T) {
	o := testOptions()
	o.Providers = nil
	h := New(o).Handler(nil)
	for _, hook := range allHooks() {
		rec := post(t, h, hook, bytes.NewReader(goodBody(t, hook)))
		assert.Equal(t, http.StatusTooManyRequests, rec.Code)
		assert.Regexp(t, `^[1-9][0-9]*$`, rec.Header().Get("Retry-After"), "anything but whole seconds makes Metacontroller call in a hot loop")
		assert.Contains(t, rec.Body.String(), "not loaded yet")
	}
}

func TestContractMissingKindIs500(t *testing.T) {
	h := fixtureHooks().Handler(nil)
	forEachCase(t, func(t *testing.T, c contractCase) {
		for _, kind := range []string{podKind, probeKind} {
			for how, without := range map[string]func(children object){
				"missing": func(children object) { delete(children, kind) },
				"null":    func(children object) { children[kind] = nil },
			} {
				body := decodedJSON(t, c.body).(object)
				without(body["children"].(object))
				rec := post(t, h, c.hook, bytes.NewReader(mustJSON(t, body)))
				require.Equal(t, http.StatusInternalServerError, rec.Code, how)
				require.Contains(t, rec.Body.String(), fmt.Sprintf("children has no %q: the CompositeController must list", kind))
			}
		}
	}, "sync", "finalize")
}

func TestContractUnknownKindIs500(t *testing.T) {
	h := fixtureHooks().Handler(nil)
	forEachCase(t, func(t *testing.T, c contractCase) {
		body := decodedJSON(t, c.body).(object)
		setNested(t, body, object{}, "children", "Job.batch/v1")
		require.Equal(t, http.StatusOK, post(t, h, c.hook, bytes.NewReader(mustJSON(t, body))).Code, "none of them")

		setNested(t, body, object{"metadata": object{"namespace": "crawl", "name": "j"}}, "children", "Job.batch/v1", "crawl/j")
		rec := post(t, h, c.hook, bytes.NewReader(mustJSON(t, body)))
		require.Equal(t, http.StatusInternalServerError, rec.Code, "an answer without it would delete it")
		require.Contains(t, rec.Body.String(), "Job.batch/v1")
	}, "sync", "finalize")
}

func TestContractUnknownModeIs500(t *testing.T) {
	h := fixtureHooks().Handler(nil)
	forEachCase(t, func(t *testing.T, c contractCase) {
		for _, mode := range []string{"Rented", "managed", ""} {
			c := c.edited(t, func(parent object) { setNested(t, parent, mode, "spec", "mode") })
			rec := post(t, h, c.hook, bytes.NewReader(c.body))
			require.Equal(t, http.StatusInternalServerError, rec.Code, "no answer is better than a guess that deletes")
			require.Contains(t, rec.Body.String(), fmt.Sprintf("spec.mode is %q", mode))
		}
	}, "sync", "finalize")
}

func TestContractBodyCap(t *testing.T) {
	srv := serveHooks(t, fixtureHooks(), nil)
	padded := func(hook string, size int) io.Reader {
		good := goodBody(t, hook)
		return io.MultiReader(bytes.NewReader(good), strings.NewReader(strings.Repeat(" ", size-len(good))))
	}
	for _, hook := range allHooks() {
		resp, answer := send(t, http.MethodPost, srv.URL+"/hooks/"+hook, asJSON(), padded(hook, maxBody+1))
		assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode, "%s: %s", hook, answer)
	}
	resp, answer := send(t, http.MethodPost, srv.URL+"/hooks/sync", asJSON(), padded("sync", maxBody))
	assert.Equal(t, http.StatusOK, resp.StatusCode, answer)
}

func TestContractPOSTOnly(t *testing.T) {
	h := fixtureHooks().Handler(nil)
	for _, hook := range allHooks() {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "LIST"} {
			rec := httptest.NewRecorder()
			req := httptest.NewRequest(method, "/hooks/"+hook, bytes.NewReader(goodBody(t, hook)))
			req.Header = asJSON()
			h.ServeHTTP(rec, req)
			assert.Equal(t, http.StatusMethodNotAllowed, rec.Code, "%s %s", method, hook)
			assert.Equal(t, http.MethodPost, rec.Header().Get("Allow"))
		}
	}
}

func TestContractJSONOnly(t *testing.T) {
	h := fixtureHooks().Handler(nil)
	for contentType, code := range map[string]int{
		"application/json": 200, "application/json; charset=utf-8": 200, "Application/JSON": 200,
		"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415, "application/yaml": 415, "application/json;;": 415,
	} {
		for _, hook := range allHooks() {
			rec := httptest.NewRecorder()
			req := httptest.NewRequest(http.MethodPost, "/hooks/"+hook, bytes.NewReader(goodBody(t, hook)))
			req.Header.Set("Content-Type", contentType)
			h.ServeHTTP(rec, req)
			assert.Equal(t, code, rec.Code, "%q: %s", contentType, rec.Body)
			if code == http.StatusOK {
				assert.Equal(t, "application/json", rec.Header().Get("Content-Type"))
			}
		}
	}
}

// Whatever is wrong with a request: the answer is a few words, which become an
// Event on the Proxy.
func TestContractErrorsAreShort(t *testing.T) {
	h := fixtureHooks().Handler(nil)
	long := strings.Repeat("x", 5*1000)
	refused := 0
	for _, c := range recordedCases(t) {
		for _, body := range broken(t, c.body, long) {
			rec := post(t, h, c.hook, bytes.NewReader(body))
			if rec.Code == http.StatusOK {
				continue
			}
			refused++
			require.Contains(t, []int{http.StatusBadRequest, http.StatusInternalServerError}, rec.Code)
			require.Equal(t, "text/plain; charset=utf-8", rec.Header().Get("Content-Type"))
			require.NotEmpty(t, strings.TrimSpace(rec.Body.String()))
			require.Less(t, rec.Body.Len(), 1000+10)
			require.NotContains(t, rec.Body.String(), "a defect of webhooks", "it panicked")
		}
	}
	require.Greater(t, refused, 1000)
}

// broken are versions of a request in which something is cut off, renamed or of
// another type.
func broken(t testing.TB, body []byte, long string) [][]byte {
	t.Helper()
	out := [][]byte{{}, body[:len(body)/3], body[:len(body)-2], append(slices.Clone(body), body...)}
	for _, path := range [][]string{{"parent"}, {"parent", "metadata"}, {"parent", "spec"}, {"parent", "spec", "mode"}, {"children"}, {"children", podKind}, {"related"}, {long}, {"parent", "kind"}} {
		for _, value := range []any{nil, long, list{long}, object{long: long}} {
			edited := decodedJSON(t, body).(object)
			if parent, ok := at(edited, path[:len(path)-1]...).(object); ok {
				parent[path[len(path)-1]] = value
				out = append(out, mustJSON(t, edited))
			}
		}
	}
	return out
}

func noProxy() *v1alpha1.Proxy { return nil }
