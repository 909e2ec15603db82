package webhooks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

func serveHooks(t *testing.T, h *Hooks, tokens *BearerTokens) *httptest.Server {
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
	sync := request{proxy: managedProxy()}.body(t)
	fin := request{proxy: managedProxy(), finalizing: true}.body(t)
	customize := mustJSON(t, metacontroller.CustomizeRequest{Controller: []byte("{}"), Parent: mustJSON(t, secretRefProxy())})
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
	good := string(request{proxy: managedProxy()}.body(t))
	withCharset := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	for name, tt := range map[string]struct {
		method, path string
		header       http.Header
		body         string
		code         int
		says         string
	}{
		"GET":                  {http.MethodGet, "/hooks/sync", asJSON(), "", 405, "POST"},
		"PUT":                  {http.MethodPut, "/hooks/finalize", asJSON(), good, 405, "POST"},
		"no content type":      {http.MethodPost, "/hooks/sync", http.Header{}, good, 415, "application/json"},
		"form":                 {http.MethodPost, "/hooks/sync", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, good, 415, "application/json"},
		"with charset":         {http.MethodPost, "/hooks/sync", withCharset, good, 200, ""},
		"other path":           {http.MethodPost, "/hooks/decorate", asJSON(), good, 404, "/hooks/customize, /hooks/sync and /hooks/finalize"},
		"root":                 {http.MethodGet, "/", http.Header{}, "", 404, "/hooks/"},
		"slash, no redirect":   {http.MethodPost, "/hooks/sync/", asJSON(), good, 404, "/hooks/"},
		"empty":                {http.MethodPost, "/hooks/sync", asJSON(), "", 400, "not a hook v2 request"},
		"half":                 {http.MethodPost, "/hooks/sync", asJSON(), good[:100], 400, "unexpected end"},
		"null":                 {http.MethodPost, "/hooks/sync", asJSON(), "null", 400, "not a JSON object"},
		"unknown field":        {http.MethodPost, "/hooks/sync", asJSON(), `{"attachments":{},` + good[1:], 400, `unknown field "attachments"`},
		"customize to sync":    {http.MethodPost, "/hooks/sync", asJSON(), `{"controller":{},"parent":{}}`, 500, "Pod.v1"},
		"sync to customize":    {http.MethodPost, "/hooks/customize", asJSON(), good, 400, `unknown field "children"`},
		"sync to finalize":     {http.MethodPost, "/hooks/finalize", asJSON(), good, 400, "check the hook URLs"},
		"no Pods":              {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"Pod.v1":{},`, "", 1), 500, `children has no "Pod.v1": the CompositeController must list`},
		"no ProxyProbes":       {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `,"ProxyProbe.crawl.example.com/v1alpha1":{}`, "", 1), 500, "ProxyProbe"},
		"parent is a list":     {http.MethodPost, "/hooks/sync", asJSON(), `{"parent":[],"children":{}}`, 400, "parent"},
		"parent is a Pod":      {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"kind":"Proxy"`, `"kind":"Pod"`, 1), 400, "want a Proxy"},
		"parent without UID":   {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"uid":"11111111-2222-3333-4444-555555555555",`, "", 1), 400, "uid"},
		"wrong type":           {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"port":3128`, `"port":"http"`, 1), 400, "port"},
		"unknown mode":         {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"mode":"Managed"`, `"mode":"Rented"`, 1), 500, `spec.mode is "Rented"`},
		"undecodable Pod":      {http.MethodPost, "/hooks/sync", asJSON(), withPod(good, `"spec":{"containers":7}`), 400, "pod proxy-mzx7ntfklm6ap7vk"},
		"undecodable stray":    {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"Pod.v1":{}`, `"Pod.v1":{"crawl/x":{"metadata":{"namespace":"crawl","name":"x"},"spec":[]}}`, 1), 400, "Pod.v1 crawl/x"},
		"keyed as by hook v1":  {http.MethodPost, "/hooks/sync", asJSON(), strings.Replace(good, `"Pod.v1":{}`, `"Pod.v1":{"x":{"metadata":{"namespace":"crawl","name":"x"}}}`, 1), 400, "version: v2"},
		"customize, no parent": {http.MethodPost, "/hooks/customize", asJSON(), `{"controller":{}}`, 400, "parent"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := serveHooks(t, fixtureHooks(), nil)
			resp, answer := send(t, tt.method, srv.URL+tt.path, tt.header, strings.NewReader(tt.body))
			assert.Equal(t, tt.code, resp.StatusCode, answer)
			assert.Contains(t, answer, tt.says)
			if tt.code == http.StatusMethodNotAllowed {
				assert.Equal(t, http.MethodPost, resp.Header.Get("Allow"))
			}
			if tt.code != http.StatusOK {
				assert.Less(t, len(answer), 1000, "it goes into an Event on the Proxy")
			}
		})
	}
}

func withPod(body, content string) string {
	name := v1alpha1.InstanceName(managedProxy().UID)
	return strings.Replace(body, `"Pod.v1":{}`, fmt.Sprintf(`"Pod.v1":{"crawl/%s":{"metadata":{"namespace":"crawl","name":%q},%s}}`, name, name, content), 1)
}

func TestHandlerCapsBodies(t *testing.T) {
	srv := serveHooks(t, fixtureHooks(), nil)
	for extra, code := range map[int]int{0: 200, 1: 413} {
		good := request{proxy: managedProxy()}.body(t)
		padded := append(good, bytes.Repeat([]byte(" "), maxBody-len(good)+extra)...)
		resp, answer := send(t, http.MethodPost, srv.URL+"/hooks/sync", asJSON(), bytes.NewReader(padded))
		assert.Equal(t, code, resp.StatusCode, answer)
	}
}

func TestHandlerNotReady(t *testing.T) {
	o := testOptions()
	o.Providers = nil
	srv := serveHooks(t, New(o), nil)
	for _, hook := range []string{"customize", "sync", "finalize"} {
		resp, answer := send(t, http.MethodPost, srv.URL+"/hooks/"+hook, asJSON(), bytes.NewReader(request{proxy: managedProxy()}.body(t)))
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		require.NoError(t, err, "anything but a whole number makes Metacontroller call in a hot loop")
		assert.GreaterOrEqual(t, seconds, 1)
		assert.Contains(t, answer, "not loaded yet")
	}
}

func TestHandlerTurnsPanicsInto500(t *testing.T) {
	o := testOptions()
	reg := prometheus.NewRegistry()
	var logs bytes.Buffer
	o.Registry, o.Log = reg, slog.New(slog.NewTextHandler(&logs, nil))
	h := New(o)
	for name, hook := range map[string]hookFunc{
		"panic": func(io.Reader) ([]byte, error) { panic("index out of range") },
		"nil":   func(io.Reader) ([]byte, error) { var p *v1alpha1.Proxy; return []byte(p.Name), nil },
	} {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/hooks/sync", strings.NewReader("{}"))
		req.Header = asJSON()
		h.serve(name, hook, nil)(rec, req)
		assert.Equal(t, http.StatusInternalServerError, rec.Code)
		assert.Contains(t, rec.Body.String(), "a bug in webhooks")
		assert.InDelta(t, 1, testutil.ToFloat64(h.metrics.requests.WithLabelValues(name, "500")), 0)
	}
	assert.Contains(t, logs.String(), "handler_test.go", "the stack is logged")
}

func TestHandlerNeverSendsAnUnsafeAnswer(t *testing.T) {
	h := fixtureHooks()
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/hooks/sync", strings.NewReader("{}"))
	req.Header = asJSON()
	h.serve("sync", func(io.Reader) ([]byte, error) { return (*metacontroller.Response)(nil).Encode() }, nil)(rec, req)
	assert.Equal(t, http.StatusInternalServerError, rec.Code)
	assert.NotEqual(t, "null", strings.TrimSpace(rec.Body.String()))
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
		p := managedProxy()
		p.UID = types.UID(fmt.Sprintf("uid-%d", i))
		r := request{proxy: p, pods: []*corev1.Pod{podOf(t, p, corev1.PodRunning, "10.0.0.1")}}
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
