// Package gcestandin is a stand-in for Compute Engine, for tests and laptops. It
// serves the REST wire of instances insert, get, delete and aggregatedList and of
// zoneOperations get to Google's client, with the traps of the real one: failures
// that only the operation reports, names that stay taken while a VM is being deleted,
// lists that omit a zone with a warning, lost responses.
//
// Faults are scripted with methods of Server or over HTTP under /control. All timing
// is read from a clock. A Runner runs each VM, such as in a proxy process.
package gcestandin

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"
)

// maxBody of an insert: metadata may have half a megabyte before JSON escapes it.
const maxBody = 8 << 20

// Options of a Server. The zero value has the project "demo" with four zones and
// every image, and no delays.
type Options struct {
	Project string             // that exists. Default "demo".
	Zones   []string           // that exist. Default four zones of two regions.
	Images  []string           // that exist, as inserts name them. Nil means all.
	Timing  Timing             // of VMs and operations
	Clock   clock.PassiveClock // of all timing. Default the real one.
	Runner  Runner             // of running VMs. Default none, with addresses from 203.0.113.0/24 on.
	// OnChange is called after every VM that is inserted, removed or changed, in their
	// order and under the server's lock: it must not call the server.
	OnChange func(Change)
	Log      *slog.Logger // of the server. Default none.
}

// Timing has the delays. Zero means none.
type Timing struct {
	Provisioning time.Duration // the time in status PROVISIONING
	Staging      time.Duration // the time in status STAGING after it; then RUNNING
	Address      time.Duration // the time from RUNNING until the VM has its external address
	Insert       time.Duration // the time until an insert operation is DONE
	// Delete is the time from a delete until the VM is gone and the operation DONE;
	// the VM is STOPPING meanwhile.
	Delete  time.Duration
	ListLag time.Duration // how far lists lag behind
}

// Change of a VM.
type Change struct {
	Kind string // inserted, removed or changed
	VM   VM     // after the change
}

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

// place of a VM or operation: names are unique within a zone.
type place struct{ zone, name string }

// New returns a server without VMs. Serve it with Handler; with a Runner also Run.
func New(opts Options) *Server {
	if opts.Project == "" {
		opts.Project = "demo"
	}
	if len(opts.Zones) == 0 {
		opts.Zones = []string{"europe-west1-b", "europe-west1-c", "europe-west1-d", "us-central1-a"}
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		opts: opts, lastID: 1_000_000_000_000_000_000,
		vms: map[place]*vm{}, operations: map[place]*operation{},
		requests: map[string]*operation{}, zones: map[string]ZoneMode{},
	}
}

// Handler serves the Compute wire under /compute/v1 and the control API under
// /control.
func (s *Server) Handler() http.Handler {
	const project = "/compute/v1/projects/{project}"
	const zone = project + "/zones/{zone}"
	mux := http.NewServeMux()
	mux.Handle("POST "+zone+"/instances", s.call("insert", s.insert))
	mux.Handle("GET "+zone+"/instances/{name}", s.call("get", s.get))
	mux.Handle("DELETE "+zone+"/instances/{name}", s.call("delete", s.delete))
	mux.Handle("GET "+zone+"/operations/{name}", s.call("operation", s.operation))
	mux.Handle("GET "+project+"/aggregated/instances", s.call("list", s.list))
	s.control(mux)
	return mux
}

// Call is one request on the Compute wire.
type Call struct {
	Op string `json:"op"` // insert, get, delete, operation or list
	// Zone and Name of the instance or operation, where the request has them.
	Zone       string    `json:"zone,omitempty"`
	Name       string    `json:"name,omitempty"`
	RequestID  string    `json:"requestId,omitempty"`  // of an insert or delete
	At         time.Time `json:"at"`                   // when it arrived
	Status     int       `json:"status"`               // of the response; 0 when none was sent
	Authorized bool      `json:"authorized,omitempty"` // it had an Authorization header
}

// Calls returns all requests on the Compute wire so far, in their order.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// ForgetCalls clears the recorded requests.
func (s *Server) ForgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// handler handles one request under the lock.
type handler func(r *http.Request, body []byte, fault *Fault) (proto.Message, *apiError)

// call wraps a handler with faults, the record of requests and the lock.
func (s *Server) call(op string, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := Call{
			Op: op, Zone: r.PathValue("zone"), Name: r.PathValue("name"),
			RequestID: r.URL.Query().Get("requestId"), At: s.opts.Clock.Now(),
			Authorized: r.Header.Get("Authorization") != "",
		}
		body, bad := readBody(r)
		if op == "insert" && bad == nil {
			var resource struct{ Name string }
			_ = json.Unmarshal(body, &resource) // insert refuses a broken body
			c.Name = resource.Name
		}
		fault := s.takeFault(c)
		if !fault.wait(r) || fault.DropRequest {
			s.record(c)
			panic(http.ErrAbortHandler)
		}
		if bad == nil && fault.Status != 0 {
			bad = &apiError{fault.Status, fault.Reason, fault.Message}
		}
		status, answer := s.answer(r, body, bad, fault, h)
		if fault.DropAnswer {
			s.record(c)
			panic(http.ErrAbortHandler)
		}
		c.Status = status
		s.record(c)
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		w.WriteHeader(status)
		_, _ = w.Write(answer)
	})
}

func (s *Server) record(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
}

// answer runs h, unless the request is bad already, and encodes its response as
// Compute does: camelCase names, 64-bit integers as text, enums by name.
func (s *Server) answer(r *http.Request, body []byte, bad *apiError, fault *Fault, h handler) (int, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out proto.Message
	if bad == nil {
		s.advance()
		if bad = s.checkPath(r); bad == nil {
			out, bad = h(r, body, fault)
		}
	}
	var answer []byte
	var err error
	status := http.StatusOK
	if bad != nil {
		status = bad.Status
		answer, err = json.Marshal(bad.wire())
	} else {
		answer, err = protojson.Marshal(out)
	}
	if err != nil {
		panic(fmt.Sprintf("gcestandin: a response cannot be encoded: %v", err)) // our own messages only
	}
	return status, answer
}

func readBody(r *http.Request) ([]byte, *apiError) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, badRequest("parseError", "The body cannot be read: %v", err)
	case len(body) > maxBody:
		return nil, &apiError{http.StatusRequestEntityTooLarge, "uploadTooLarge", "Request payload is too large."}
	}
	return body, nil
}

func (s *Server) checkPath(r *http.Request) *apiError {
	project, zone := r.PathValue("project"), r.PathValue("zone")
	switch {
	case project != s.opts.Project:
		return notFound("projects/" + project)
	case zone != "" && !slices.Contains(s.opts.Zones, zone):
		return notFound("projects/" + project + "/zones/" + zone)
	case zone != "" && s.zones[zone] != ZoneUp:
		return &apiError{http.StatusServiceUnavailable, "backendError", "Zone " + zone + " is not available."}
	}
	return nil
}

// apiError is an error in the format of classic Google APIs.
type apiError struct {
	Status          int
	Reason, Message string
}

func (e *apiError) wire() any {
	return map[string]any{"error": map[string]any{
		"code": e.Status, "message": e.Message,
		"errors": []any{map[string]any{"message": e.Message, "domain": "global", "reason": e.Reason}},
	}}
}

func notFound(resource string) *apiError {
	return &apiError{http.StatusNotFound, "notFound", fmt.Sprintf("The resource '%s' was not found", resource)}
}

func badRequest(reason, format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, reason, fmt.Sprintf(format, args...)}
}

// invalid has the real API's message, which echoes the refused value.
func invalid(field, value, why string) *apiError {
	return badRequest("invalid", "Invalid value for field '%s': '%s'. %s", field, value, why)
}
