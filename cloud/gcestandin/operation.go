package gcestandin

import (
	"fmt"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
)

// operation is the work behind one accepted insert or delete.
type operation struct {
	place
	kind  string
	vm    *vm
	due   time.Time
	fails *OperationError
	never bool
	done  bool
	// forgotten operations are not found any more.
	forgotten bool
	resource  *computepb.Operation
}

func (s *Server) begin(kind string, v *vm, takes time.Duration, fault *Fault) *operation {
	s.lastID++
	name := fmt.Sprintf("operation-%d", s.lastID)
	o := &operation{
		place: place{v.zone, name}, kind: kind, vm: v, due: s.due(takes),
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

func (o *operation) json() []byte { return encode(o.resource) }

// encode writes the JSON that Compute writes: camelCase names, 64-bit integers
// as text, enums by name.
func encode(m proto.Message) []byte {
	b, err := protojson.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("gcestandin: %T is not JSON: %v", m, err)) // our own messages only
	}
	return b
}
