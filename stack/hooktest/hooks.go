package hooktest

import (
	"net/http"
	"sync/atomic"
)

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
