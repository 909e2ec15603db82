package standin_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/hooktest"
)

// recorder is a reverse proxy in front of hooks that keeps their requests.
//
// A request whose children were out of date already when it came, because a
// cache lagged behind the API server by a moment, is passed on and not kept:
// another one follows, and which of them come is a matter of luck with both
// drivers.
type recorder struct {
	t     *testing.T
	lab   *hooktest.Lab
	hooks *httputil.ReverseProxy

	mu   sync.Mutex
	step string
	kept []request
}

// request is one that was kept.
type request struct {
	step, hook string
	body       []byte
	// versions of all objects that it shows.
	versions string
}

func newRecorder(t *testing.T, lab *hooktest.Lab, hooks string) *recorder {
	t.Helper()
	target, err := url.Parse(hooks)
	require.NoError(t, err)
	return &recorder{t: t, lab: lab, hooks: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}}
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	got := request{hook: path.Base(req.URL.Path), body: body}
	shown, err := shownBy(body)
	if err != nil {
		r.t.Errorf("%s: %v", got.hook, err)
	}
	got.versions = shown.String()
	if shown.sameButParent(r.live(req.Context(), shown, got.hook)) {
		r.mu.Lock()
		got.step = r.step
		r.kept = append(r.kept, got)
		r.mu.Unlock()
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.hooks.ServeHTTP(w, req)
}

// begin names what is done next.
func (r *recorder) begin(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = step
}

func (r *recorder) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kept)
}

// atRest reports whether the hooks have seen the Proxy of that name as it is
// now, twice, so that their answer has changed nothing; or whether there is no
// such Proxy.
func (r *recorder) atRest(proxy string) bool {
	if r.lab.Proxy(proxy) == nil {
		return true
	}
	var last []request
	for _, got := range slices.Backward(r.requests()) {
		if got.hook != metacontroller.HookCustomize {
			last = append(last, got)
		}
	}
	if len(last) < 2 || last[0].versions != last[1].versions {
		return false
	}
	shown, err := shownBy(last[0].body)
	require.NoError(r.t, err)
	return last[0].versions == r.live(r.t.Context(), shown, last[0].hook).String()
}
