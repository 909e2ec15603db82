package webhooks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
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
