package gcestandin

import (
	"net/http"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"
)

func (s *Server) insert(r *http.Request, fault *Fault) (int, []byte, *apiError) {
	zone := r.PathValue("zone")
	requestID, first, bad := s.requestID(r)
	if bad != nil || first != nil {
		return s.repeat(first, bad)
	}
	resource := &computepb.Instance{}
	if err := protojson.Unmarshal(bodyOf(r), resource); err != nil {
		return 0, nil, badRequest("parseError", "Invalid JSON payload received. %v", err)
	}
	if bad := s.checkInsert(zone, resource); bad != nil {
		return 0, nil, bad
	}
	v := s.add(zone, resource)
	v.doomed = fault.OperationError != nil
	o := s.begin("insert", v, s.opts.Timing.Insert, fault)
	s.remember(requestID, o)
	s.finish(o, s.opts.Clock.Now())
	return http.StatusOK, o.json(), nil
}

func (s *Server) delete(r *http.Request, fault *Fault) (int, []byte, *apiError) {
	zone, name := r.PathValue("zone"), r.PathValue("name")
	requestID, first, bad := s.requestID(r)
	if bad != nil || first != nil {
		return s.repeat(first, bad)
	}
	v := s.vms[place{zone, name}]
	switch {
	case v == nil:
		return 0, nil, notFound("projects/" + s.opts.Project + "/zones/" + zone + "/instances/" + name)
	case v.resource.GetDeletionProtection():
		return 0, nil, badRequest("invalidResourceUsage", "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'.")
	case !v.leaves.IsZero():
		return 0, nil, badRequest("resourceNotReady", "The resource 'projects/%s/zones/%s/instances/%s' is not ready", s.opts.Project, zone, name)
	}
	if fault.OperationError == nil {
		v.leaves = s.opts.Clock.Now().Add(s.opts.Timing.Delete)
		v.forced = ""
	}
	o := s.begin("delete", v, s.opts.Timing.Delete, fault)
	s.remember(requestID, o)
	s.changed("changed", v)
	s.advance()
	return http.StatusOK, o.json(), nil
}

// requestID returns the request's id, and the operation of the first request
// with that id if this is a repeat.
func (s *Server) requestID(r *http.Request) (string, *operation, *apiError) {
	id := r.URL.Query().Get("requestId")
	if id == "" {
		return "", nil, nil
	}
	parsed, err := uuid.Parse(id)
	if err != nil || parsed == uuid.Nil {
		return "", nil, invalid("requestId", id, "Must be a valid, non-zero UUID.")
	}
	return id, s.requests[id], nil
}

func (s *Server) repeat(first *operation, bad *apiError) (int, []byte, *apiError) {
	if bad != nil {
		return 0, nil, bad
	}
	return http.StatusOK, first.json(), nil
}

func (s *Server) remember(requestID string, o *operation) {
	if requestID != "" {
		s.requests[requestID] = o
	}
}

func (s *Server) get(r *http.Request, _ *Fault) (int, []byte, *apiError) {
	zone, name := r.PathValue("zone"), r.PathValue("name")
	v := s.vms[place{zone, name}]
	if v == nil {
		return 0, nil, notFound("projects/" + s.opts.Project + "/zones/" + zone + "/instances/" + name)
	}
	return http.StatusOK, encode(s.wire(v, s.opts.Clock.Now())), nil
}

func (s *Server) operation(r *http.Request, _ *Fault) (int, []byte, *apiError) {
	zone, name := r.PathValue("zone"), r.PathValue("name")
	o := s.operations[place{zone, name}]
	if o == nil || o.forgotten {
		return 0, nil, notFound("projects/" + s.opts.Project + "/zones/" + zone + "/operations/" + name)
	}
	return http.StatusOK, o.json(), nil
}

// ForgetOperations makes all operations unknown, as Compute does after a while.
func (s *Server) ForgetOperations() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	for _, o := range s.operations {
		o.forgotten = true // it goes on all the same
	}
	s.requests = map[string]*operation{}
}

// due is when something that takes d is over.
func (s *Server) due(d time.Duration) time.Time { return s.opts.Clock.Now().Add(d) }
