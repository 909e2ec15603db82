package gcestandin

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// Server is the stand-in. All methods are safe for concurrent use.
type Server struct {
	opts Options

	mu         sync.Mutex
	lastID     uint64
	lastIP     int
	vms        map[place]*vm
	gone       []*vm
	operations map[place]*operation
	requests   map[string]*operation
	zones      map[string]ZoneMode
	faults     []*Fault
	calls      []Call
}

// place is where a VM or operation is: names are unique within a zone.
type place struct{ zone, name string }

// New returns a server without VMs. Serve it with Handler; with a Runner also
// Run.
func New(opts Options) *Server {
	opts.setDefaults()
	return &Server{
		opts:       opts,
		lastID:     1_000_000_000_000_000_000,
		vms:        map[place]*vm{},
		operations: map[place]*operation{},
		requests:   map[string]*operation{},
		zones:      map[string]ZoneMode{},
	}
}

// Handler serves the Compute wire under /compute/v1 and the control surface
// under /control.
func (s *Server) Handler() http.Handler {
	const zone = "/compute/v1/projects/{project}/zones/{zone}"
	mux := http.NewServeMux()
	mux.Handle("POST "+zone+"/instances", s.call("insert", s.insert))
	mux.Handle("GET "+zone+"/instances/{name}", s.call("get", s.get))
	mux.Handle("DELETE "+zone+"/instances/{name}", s.call("delete", s.delete))
	mux.Handle("GET "+zone+"/operations/{name}", s.call("operation", s.operation))
	mux.Handle("GET /compute/v1/projects/{project}/aggregated/instances", s.call("list", s.list))
	s.control(mux)
	return mux
}

// Call is one request on the Compute wire.
type Call struct {
	// Op is insert, get, delete, operation or list.
	Op string `json:"op"`
	// Zone and Name of the instance or operation, where the request has them.
	Zone string `json:"zone,omitempty"`
	Name string `json:"name,omitempty"`
	// RequestID of an insert or delete.
	RequestID string `json:"requestId,omitempty"`
	// At is when it came.
	At time.Time `json:"at"`
	// Status that it was answered with; 0 when no answer was sent.
	Status int `json:"status"`
	// Authorized: it carried an Authorization header.
	Authorized bool `json:"authorized,omitempty"`
}

// Calls returns all requests on the Compute wire so far, in their order.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// ForgetCalls empties the record of requests.
func (s *Server) ForgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// handler answers one request under the lock.
type handler func(*http.Request, *Fault) (int, []byte, *apiError)

// call wraps a handler with faults, the record of requests and the lock.
func (s *Server) call(op string, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := Call{
			Op: op, Zone: r.PathValue("zone"), Name: r.PathValue("name"),
			RequestID: r.URL.Query().Get("requestId"), At: s.opts.Clock.Now(),
			Authorized: r.Header.Get("Authorization") != "",
		}
		body, apiErr := readBody(r)
		if op == "insert" && apiErr == nil {
			c.Name = peekName(body)
		}
		fault := s.takeFault(c)
		if !fault.wait(r) || fault.DropRequest {
			s.note(c)
			panic(http.ErrAbortHandler)
		}
		status, answer := s.answer(r, body, apiErr, fault, h)
		if !fault.DropAnswer {
			c.Status = status
		}
		s.note(c)
		if fault.DropAnswer {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		w.WriteHeader(status)
		_, _ = w.Write(answer)
	})
}

func (s *Server) note(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
}

func (s *Server) answer(r *http.Request, body []byte, bad *apiError, fault *Fault, h handler) (int, []byte) {
	if bad == nil {
		bad = fault.apiError()
	}
	if bad != nil {
		return bad.Status, bad.body()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	if bad = s.checkPath(r); bad == nil {
		var status int
		var answer []byte
		if status, answer, bad = h(withBody(r, body), fault); bad == nil {
			return status, answer
		}
	}
	return bad.Status, bad.body()
}

func (s *Server) checkPath(r *http.Request) *apiError {
	project, zone := r.PathValue("project"), r.PathValue("zone")
	switch {
	case project != s.opts.Project:
		return notFound("projects/" + project)
	case zone != "" && !slices.Contains(s.opts.Zones, zone):
		return notFound("projects/" + project + "/zones/" + zone)
	case zone != "" && s.zones[zone] != ZoneUp:
		return &apiError{Status: http.StatusServiceUnavailable, Reason: "backendError", Message: "Zone " + zone + " is not available."}
	}
	return nil
}
