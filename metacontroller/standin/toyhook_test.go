package standin

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// reply is what a toy hook answers; a zero code is 200.
type reply struct {
	code   int
	header map[string]string
	body   string
}

// call is one request that a toy hook got.
type call struct {
	hook string
	at   time.Time
	body []byte
	metacontroller.Request
}

// toyHook is a hook server whose answers tests set.
type toyHook struct {
	*httptest.Server

	mu      sync.Mutex
	calls   []call
	answers map[string]func(call) reply
}

// newToyHook answers customize with no rules, sync with nothing and finalize
// with finalized, until told otherwise.
func newToyHook(t testing.TB) *toyHook {
	h := &toyHook{answers: map[string]func(call) reply{
		metacontroller.HookCustomize: func(call) reply { return reply{body: `{"relatedResources":[]}`} },
		metacontroller.HookSync:      func(call) reply { return reply{body: `{"status":{},"children":[]}`} },
		metacontroller.HookFinalize:  func(call) reply { return reply{body: `{"status":{},"children":[],"finalized":true}`} },
	}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *toyHook) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	got := call{hook: strings.TrimPrefix(r.URL.Path, "/"), at: time.Now(), body: body}
	if err != nil || json.Unmarshal(body, &got.Request) != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "not a hook call", http.StatusTeapot)
		return
	}
	h.mu.Lock()
	h.calls = append(h.calls, got)
	answer := h.answers[got.hook]
	h.mu.Unlock()
	rep := answer(got)
	for name, value := range rep.header {
		w.Header().Set(name, value)
	}
	if rep.code != 0 {
		w.WriteHeader(rep.code)
	}
	_, _ = io.WriteString(w, rep.body)
}

// on sets the answer of one hook.
func (h *toyHook) on(hook string, answer func(call) reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[hook] = answer
}

// say sets a fixed answer of one hook.
func (h *toyHook) say(hook, body string) {
	h.on(hook, func(call) reply { return reply{body: body} })
}

// got returns the calls of one hook so far.
func (h *toyHook) got(hook string) []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []call
	for _, c := range h.calls {
		if c.hook == hook {
			out = append(out, c)
		}
	}
	return out
}

func (h *toyHook) last(t testing.TB, hook string) call {
	t.Helper()
	calls := h.got(hook)
	require.NotEmpty(t, calls, "no call of %s", hook)
	return calls[len(calls)-1]
}

// order returns the names of the hooks in the order of their calls.
func (h *toyHook) order() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []string{}
	for _, c := range h.calls {
		out = append(out, c.hook)
	}
	return out
}

// childKeys are the keys of the observed children of one kind.
func (c call) childKeys(kind string) []string {
	out := []string{}
	for key := range maps.Keys(c.Children[kind]) {
		out = append(out, key)
	}
	return out
}

// manifestFor is our own manifest with the hooks at base.
func manifestFor(t testing.TB, base string) *metacontroller.Controller {
	t.Helper()
	spec, err := metacontroller.LoadController("../compositecontroller.yaml")
	require.NoError(t, err)
	require.NoError(t, spec.SetHookBaseURL(base))
	return spec
}
