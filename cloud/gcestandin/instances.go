package gcestandin

import (
	"fmt"
	"net/http"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
)

func (s *Server) insert(r *http.Request, body []byte, fault *Fault) (proto.Message, *apiError) {
	return s.mutate(r, func() (*operation, *apiError) {
		zone, resource := r.PathValue("zone"), &computepb.Instance{}
		if err := protojson.Unmarshal(body, resource); err != nil {
			return nil, badRequest("parseError", "Invalid JSON payload received. %v", err)
		}
		if bad := s.checkInsert(zone, resource); bad != nil {
			return nil, bad
		}
		v := s.add(zone, resource)
		v.doomed = fault.OperationError != nil
		return s.begin("insert", v, s.opts.Timing.Insert, fault), nil
	})
}

func (s *Server) delete(r *http.Request, _ []byte, fault *Fault) (proto.Message, *apiError) {
	return s.mutate(r, func() (*operation, *apiError) {
		v, bad := s.find(r)
		switch {
		case bad != nil:
			return nil, bad
		case v.resource.GetDeletionProtection():
			return nil, badRequest("invalidResourceUsage", "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'.")
		case !v.leaves.IsZero():
			return nil, badRequest("resourceNotReady", "The resource '%s' is not ready", s.path(v.place))
		}
		if fault.OperationError == nil {
			v.leaves = s.opts.Clock.Now().Add(s.opts.Timing.Delete)
			v.forced = ""
		}
		o := s.begin("delete", v, s.opts.Timing.Delete, fault)
		s.changed("changed", v)
		return o, nil
	})
}

// mutate does an insert or delete, or returns the operation of the first request
// with the same id.
func (s *Server) mutate(r *http.Request, do func() (*operation, *apiError)) (proto.Message, *apiError) {
	id := r.URL.Query().Get("requestId")
	if parsed, err := uuid.Parse(id); id != "" && (err != nil || parsed == uuid.Nil) {
		return nil, invalid("requestId", id, "Must be a valid, non-zero UUID.")
	}
	if first := s.requests[id]; first != nil {
		return first.resource, nil
	}
	o, bad := do()
	if bad != nil {
		return nil, bad
	}
	if id != "" {
		s.requests[id] = o
	}
	s.advance()
	return o.resource, nil
}

// find returns the VM of a request's path.
func (s *Server) find(r *http.Request) (*vm, *apiError) {
	p := place{r.PathValue("zone"), r.PathValue("name")}
	if v := s.vms[p]; v != nil {
		return v, nil
	}
	return nil, notFound(s.path(p))
}

func (s *Server) path(p place) string {
	return "projects/" + s.opts.Project + "/zones/" + p.zone + "/instances/" + p.name
}

func (s *Server) get(r *http.Request, _ []byte, _ *Fault) (proto.Message, *apiError) {
	v, bad := s.find(r)
	if bad != nil {
		return nil, bad
	}
	return s.wire(v, s.opts.Clock.Now()), nil
}

func (s *Server) operation(r *http.Request, _ []byte, _ *Fault) (proto.Message, *apiError) {
	zone, name := r.PathValue("zone"), r.PathValue("name")
	o := s.operations[place{zone, name}]
	if o == nil || o.forgotten {
		return nil, notFound("projects/" + s.opts.Project + "/zones/" + zone + "/operations/" + name)
	}
	return o.resource, nil
}

// ForgetOperations makes all operations unknown, as Compute does after a while.
func (s *Server) ForgetOperations() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	for _, o := range s.operations {
		o.forgotten = true // it takes effect all the same
	}
	s.requests = map[string]*operation{}
}

// operation of one accepted insert or delete.
type operation struct {
	place
	vm          *vm
	due         time.Time
	fails       *OperationError
	never, done bool
	// forgotten operations are not found.
	forgotten bool
	resource  *computepb.Operation
}

func (s *Server) begin(kind string, v *vm, takes time.Duration, fault *Fault) *operation {
	s.lastID++
	name := fmt.Sprintf("operation-%d", s.lastID)
	o := &operation{
		place: place{v.zone, name}, vm: v, due: s.opts.Clock.Now().Add(takes),
		fails: fault.OperationError, never: fault.OperationNeverEnds,
		resource: &computepb.Operation{
			Id: ptr.To(s.lastID), Kind: ptr.To("compute#operation"), Name: ptr.To(name),
			Zone: ptr.To(s.url("zones/" + v.zone)), OperationType: ptr.To(kind),
			TargetId: ptr.To(v.resource.GetId()), TargetLink: ptr.To(v.resource.GetSelfLink()),
			Status: ptr.To(computepb.Operation_RUNNING), Progress: ptr.To[int32](0),
		},
	}
	s.operations[o.place] = o
	return o
}

// finish ends an operation that is due.
func (s *Server) finish(o *operation, now time.Time) {
	if o.done || o.never || now.Before(o.due) {
		return
	}
	o.done = true
	o.resource.Status = ptr.To(computepb.Operation_DONE)
	o.resource.Progress = ptr.To[int32](100)
	if o.fails == nil {
		return
	}
	o.resource.Error = o.fails.wire()
	if o.fails.HTTPStatus != 0 {
		o.resource.HttpErrorStatusCode = ptr.To(int32(o.fails.HTTPStatus))
		o.resource.HttpErrorMessage = ptr.To("operation failed")
	}
	if o.vm.doomed && s.vms[o.vm.place] == o.vm {
		s.remove(o.vm, o.due)
	}
}

func (e *OperationError) wire() *computepb.Error {
	out := &computepb.Errors{Code: ptr.To(e.Code), Message: ptr.To(e.Message)}
	if e.QuotaMetric != "" {
		out.ErrorDetails = append(out.ErrorDetails, &computepb.ErrorDetails{QuotaInfo: &computepb.QuotaExceededInfo{
			MetricName: ptr.To(e.QuotaMetric), Limit: ptr.To(e.QuotaLimit),
		}})
	}
	if e.ZonesAvailable != "" {
		out.ErrorDetails = append(out.ErrorDetails, &computepb.ErrorDetails{ErrorInfo: &computepb.ErrorInfo{
			Domain: ptr.To("compute.googleapis.com"), Reason: ptr.To("resource_availability"),
			Metadatas: map[string]string{"zonesAvailable": e.ZonesAvailable},
		}})
	}
	return &computepb.Error{Errors: []*computepb.Errors{out}}
}
