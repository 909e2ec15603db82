package webhooks

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/bearer"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func serveHooks(t *testing.T, h *Hooks, tokens *config.BearerTokens) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h.Handler(tokens))
	t.Cleanup(srv.Close)
	return srv
}

// send makes one request without following redirects.
func send(t *testing.T, method, url string, header http.Header, body io.Reader) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, body)
	require.NoError(t, err)
	req.Header = header
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(b)
}

func asJSON() http.Header { return http.Header{"Content-Type": {"application/json"}} }

func TestHandlerAnswers(t *testing.T) {
	srv := serveHooks(t, fixtureHooks(), nil)
	sync := request{proxy: proxytest.Managed()}.body(t)
	fin := request{proxy: proxytest.Managed(), finalizing: true}.body(t)
	customize := mustJSON(t, metacontroller.CustomizeRequest{Controller: []byte("{}"), Parent: mustJSON(t, proxytest.SecretRef())})
	for hook, body := range map[string][]byte{"sync": sync, "finalize": fin, "customize": customize} {
		t.Run(hook, func(t *testing.T) {
			resp, answer := send(t, http.MethodPost, srv.URL+"/hooks/"+hook, asJSON(), bytes.NewReader(body))
			require.Equal(t, http.StatusOK, resp.StatusCode, answer)
			assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
			assert.Equal(t, strconv.Itoa(len(answer)), resp.Header.Get("Content-Length"))
			assert.Equal(t, string(answerTo(t, fixtureHooks(), hook, body)), answer)
		})
	}
}

func TestHandlerRefuses(t *testing.T) {
	good := string(request{proxy: proxytest.Managed()}.body(t))
	for name, tt := range map[string]struct {
		method, path string
		header       http.Header
		body         string
		code         int
		says         string
	}{
		"other path":            {http.MethodPost, "/hooks/decorate", asJSON(), good, 404, "/hooks/customize, /hooks/sync and /hooks/finalize"},
		"root":                  {http.MethodGet, "/", http.Header{}, "", 404, "/hooks/"},
		"slash, no redirect":    {http.MethodPost, "/hooks/sync/", asJSON(), good, 404, "/hooks/"},
		"empty":                 {http.MethodPost, "/hooks/sync", asJSON(), "", 400, "not a hook v2 request"},
		"half":                  {http.MethodPost, "/hooks/sync", asJSON(), good[:100], 400, "unexpected EOF"},
		"null":                  {http.MethodPost, "/hooks/sync", asJSON(), "null", 400, "not a JSON object"},
		"repeated field":        {http.MethodPost, "/hooks/sync", asJSON(), `{"children":{},` + good[1:], 400, `duplicate object member name "children"`},
		"customize to sync":     {http.MethodPost, "/hooks/sync", asJSON(), `{"controller":{},"parent":{}}`, 500, "Pod.v1"},
		"sync to customize":     {http.MethodPost, "/hooks/customize", asJSON(), good, 400, "children in a customize request"},
		"sync to finalize":      {http.MethodPost, "/hooks/finalize", asJSON(), good, 400, "check the hook URLs"},
		"parent is a list":      {http.MethodPost, "/hooks/sync", asJSON(), `{"parent":[],"children":{}}`, 400, "parent"},
		"parent is a Pod":       {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"kind":"Proxy"`, `"kind":"Pod"`, 1), 400, "want a Proxy"},
		"parent without UID":    {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"uid":"11111111-2222-3333-4444-555555555555",`, "", 1), 400, "uid"},
		"wrong type":            {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"port":3128`, `"port":"http"`, 1), 400, "port"},
		"undecodable Pod":       {http.MethodPost, "/hooks/sync", asJSON(), withPod(good, `"spec":{"containers":7}`), 400, "pod proxy-mzx7ntfklm6ap7vk"},
		"undecodable stray":     {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"Pod.v1":{}`, `"Pod.v1":{"crawl/x":{"metadata":{"namespace":"crawl","name":"x"},"spec":[]}}`, 1), 400, "Pod.v1 crawl/x"},
		"stray of another kind": {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"Pod.v1":{}`, `"Pod.v1":{"crawl/x":{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"crawl","name":"x"}}}`, 1), 400, `Pod.v1 crawl/x: is a "Job.batch/v1"`},
		"keyed as by hook v1":   {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"Pod.v1":{}`, `"Pod.v1":{"x":{"metadata":{"namespace":"crawl","name":"x"}}}`, 1), 400, "version: v2"},
		"customize, no parent":  {http.MethodPost, "/hooks/customize", asJSON(), `{"controller":{}}`, 400, "parent"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := serveHooks(t, fixtureHooks(), nil)
			resp, answer := send(t, tt.method, srv.URL+tt.path, tt.header, strings.NewReader(tt.body))
			assert.Equal(t, tt.code, resp.StatusCode, answer)
			assert.Contains(t, answer, tt.says)
		})
	}
}

func withPod(body, content string) string {
	name := v1alpha1.InstanceName(proxytest.Managed().UID)
	return strings.Replace(body, `"Pod.v1":{}`, fmt.Sprintf(`"Pod.v1":{"crawl/%s":{"metadata":{"namespace":"crawl","name":%q},%s}}`, name, name, content), 1)
}

func TestHandlerBrokenBody(t *testing.T) {
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/hooks/sync", io.MultiReader(strings.NewReader("{"), errReader{}))
	req.Header = asJSON()
	fixtureHooks().Handler(nil).ServeHTTP(rec, req)
	assert.GreaterOrEqual(t, rec.Code, 400)
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// Hooks are called by several workers at once.
func TestHandlerConcurrently(t *testing.T) {
	h := fixtureHooks()
	srv := serveHooks(t, h, nil)
	var wg sync.WaitGroup
	for i := range 40 {
		p := proxytest.Managed()
		p.UID = types.UID(fmt.Sprintf("uid-%d", i))
		r := request{proxy: p, pods: []*corev1.Pod{proxytest.Pod(t, p, corev1.PodRunning, "10.0.0.1")}}
		p.Spec.Port = 3129
		body := r.body(t)
		wg.Go(func() {
			for range 3 {
				resp, _ := send(t, http.MethodPost, srv.URL+"/hooks/sync", asJSON(), bytes.NewReader(body))
				assert.Equal(t, http.StatusOK, resp.StatusCode)
			}
		})
	}
	wg.Wait()
	s := h.budget.states()["pods"]
	assert.Equal(t, 40, s.seen)
	assert.LessOrEqual(t, s.underWay, s.limit)
}

func TestHandlerWantsTheToken(t *testing.T) {
	tokens, err := config.NewBearerTokens(tokenFile(t, oldToken), quiet())
	require.NoError(t, err)
	srv := serveHooks(t, fixtureHooks(), tokens)
	header := asJSON()
	resp, answer := send(t, http.MethodPost, srv.URL+"/hooks/sync", header, nil)
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	assert.Equal(t, "Bearer", resp.Header.Get("WWW-Authenticate"))
	assert.Contains(t, answer, "authorization in the CompositeController")
	header.Set("Authorization", "Bearer "+oldToken)
	resp, _ = send(t, http.MethodPost, srv.URL+"/hooks/sync", header, nil)
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode, "past the door")
}

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
	assert.Contains(t, logs.String(), "handler_test.go", "the stack is logged")
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

// FuzzRequests sends arbitrary requests to the hooks' endpoint: none without the
// token reaches a hook, and only a hook answers JSON.
func FuzzRequests(f *testing.F) {
	const as = "Authorization: Bearer " + newToken + "\r\n"
	with := func(line, headers, body string) []byte {
		return []byte(line + " HTTP/1.1\r\nHost: w\r\n" + headers + "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	}
	f.Add(with("POST /hooks/sync", as, `{"parent":{"kind":"Proxy","metadata":{"namespace":"n","name":"a","uid":"b"},"spec":{"mode":"External","endpoint":{"host":"h","port":1}}},"children":{"Pod.v1":{},"ProxyProbe.crawl.example.com/v1alpha1":{}}}`))
	f.Add(with("POST /hooks/finalize", "", `{}`))
	f.Add(with("GET /hooks/customize", as, ""))
	f.Add(with("POST /hooks//sync", as, `null`))
	f.Add(with("POST http://x/hooks/%73ync?x", as, `[`))
	f.Add([]byte("POST /hooks/sync HTTP/1.0\r\n" + as + "Content-Type: application/json; charset=\"\r\n\r\n"))
	given := []bearer.Token{bearer.New(newToken)}
	tokens, err := config.NewBearerTokens(tokenFile(f, newToken), quiet())
	require.NoError(f, err)
	h := New(testOptions()).Handler(tokens)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return // package http answers these
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		require.NotContains(t, rec.Body.String(), "a defect of webhooks", "it panicked")
		require.NotContains(t, rec.Body.String(), newToken)
		require.NotEmpty(t, rec.Body.String())
		isJSON := rec.Header().Get("Content-Type") == "application/json"
		require.Equal(t, rec.Code == http.StatusOK, isJSON, rec.Code)
		if isJSON || rec.Code == http.StatusBadRequest || rec.Code == http.StatusInternalServerError {
			require.True(t, bearer.Accepts(r.Header.Get("Authorization"), given...), "a stranger reached the hook")
			require.Equal(t, http.MethodPost, r.Method)
		}
	})
}

// FuzzParseLimit: a limit is at least one and at most the fleet, whatever the
// fleet's size.
func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{"20%", "3", "0", "101%", "-1", "%", "1e3", "9223372036854775807", "+5%", "5%%"} {
		f.Add(seed, 100)
	}
	f.Fuzz(func(t *testing.T, text string, fleet int) {
		l, err := ParseLimit(text)
		if err != nil {
			require.ErrorContains(t, err, strconv.Quote(text))
			return
		}
		fleet = max(0, fleet) % 1_000_000 // more than any API server holds
		require.Positive(t, limitOf(l, fleet))
		if strings.HasSuffix(text, "%") {
			require.LessOrEqual(t, limitOf(l, fleet), max(1, fleet))
		}
	})
}
