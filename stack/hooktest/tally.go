package hooktest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Call is one call of a hook.
type Call struct {
	// Hook is customize, sync or finalize, and Proxy the parent's name.
	Hook, Proxy string
	// Began is the start of the request.
	Began time.Time
}

// Tally counts the calls of hooks.
type Tally struct {
	hooks http.Handler

	mu    sync.Mutex
	calls []Call
}

// NewTally counts the calls of hooks.
func NewTally(hooks http.Handler) *Tally { return &Tally{hooks: hooks} }

// ServeHTTP implements http.Handler.
func (t *Tally) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	t.hooks.ServeHTTP(w, r)
	call := Call{Hook: path.Base(r.URL.Path), Proxy: parentName(body), Began: began}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, call)
}

// Calls are all calls so far.
func (t *Tally) Calls() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Call(nil), t.calls...)
}

// Of are the calls of one hook so far, by Proxy.
func (t *Tally) Of(hook string) map[string][]Call {
	out := map[string][]Call{}
	for _, c := range t.Calls() {
		if c.Hook == hook {
			out[c.Proxy] = append(out[c.Proxy], c)
		}
	}
	return out
}

func parentName(body []byte) string {
	var request struct {
		Parent struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"parent"`
	}
	if json.Unmarshal(body, &request) != nil {
		return ""
	}
	return request.Parent.Metadata.Name
}

// sample is one line of the API server's metrics.
type sample struct {
	labels map[string]string
	value  float64
}

var (
	samplePattern = regexp.MustCompile(`(?m)^(\w+)\{(.*)\} (\S+)$`)
	labelPattern  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// metric reads all samples of one metric of the API server.
func (l *Lab) metric(name string) []sample {
	l.t.Helper()
	body, err := l.core.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(l.t.Context())
	if err != nil {
		l.t.Fatalf("read the API server's metrics: %v", err)
	}
	var out []sample
	for _, m := range samplePattern.FindAllStringSubmatch(string(body), -1) {
		if m[1] != name {
			continue
		}
		s := sample{labels: map[string]string{}}
		for _, pair := range labelPattern.FindAllStringSubmatch(m[2], -1) {
			s.labels[pair[1]] = pair[2]
		}
		if s.value, err = strconv.ParseFloat(m[3], 64); err != nil {
			l.t.Fatalf("metric %s: %v", name, err)
		}
		out = append(out, s)
	}
	return out
}

// Writes counts the write requests to the API server, by verb and resource, except its own: Leases
// and its configuration. A request that changes nothing counts too.
func (l *Lab) Writes() map[string]int {
	l.t.Helper()
	out := map[string]int{}
	for _, s := range l.metric("apiserver_request_total") {
		if slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, s.labels["verb"]) && s.labels["resource"] != "leases" {
			out[s.labels["verb"]+" "+s.labels["resource"]+"/"+s.labels["subresource"]] += int(s.value)
		}
	}
	return out
}

// SecretWatches counts the open watches of the Secrets of all namespaces, including one of the API
// server itself.
func (l *Lab) SecretWatches() int {
	l.t.Helper()
	n := 0
	for _, s := range l.metric("apiserver_longrunning_requests") {
		if s.labels["verb"] == "WATCH" && s.labels["resource"] == "secrets" && s.labels["scope"] == "cluster" {
			n += int(s.value)
		}
	}
	return n
}

// Switch serves hooks that can be replaced while they are called, as in a rollout of webhooks.
type Switch struct {
	current atomic.Pointer[http.Handler]
}

// NewSwitch starts with hooks.
func NewSwitch(hooks http.Handler) *Switch {
	s := &Switch{}
	s.To(hooks)
	return s
}

// To replaces the hooks.
func (s *Switch) To(hooks http.Handler) { s.current.Store(&hooks) }

// ServeHTTP implements http.Handler.
func (s *Switch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.current.Load()).ServeHTTP(w, r)
}
