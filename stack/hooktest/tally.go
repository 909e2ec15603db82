package hooktest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"sync"
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
