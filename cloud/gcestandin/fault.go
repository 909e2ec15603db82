package gcestandin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Fault makes the requests that it matches fail. The first matching fault applies.
type Fault struct {
	// Op, Zone and Name to match; empty matches all.
	Op    string `json:"op,omitempty"`
	Zone  string `json:"zone,omitempty"`
	Name  string `json:"name,omitempty"`
	Skip  int    `json:"skip,omitempty"`  // how many matching requests succeed first
	Count int    `json:"count,omitempty"` // how many requests then fail; 0 means all

	DelayMillis int `json:"delayMillis,omitempty"` // delays the request, in real time
	// Status is the HTTP error of the response; the request has no effect. Reason and
	// Message are in its body.
	Status  int    `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// DropRequest closes the connection; the request has no effect.
	DropRequest bool `json:"dropRequest,omitempty"`
	// DropAnswer handles the request and closes the connection without a response.
	DropAnswer bool `json:"dropAnswer,omitempty"`
	// OperationError accepts an insert or delete whose operation ends with that error.
	// The VM of such an insert exists until then.
	OperationError *OperationError `json:"operationError,omitempty"`
	// OperationNeverEnds accepts an insert or delete that takes effect, while its
	// operation stays RUNNING.
	OperationNeverEnds bool `json:"operationNeverEnds,omitempty"`
}

// OperationError is the error of an operation.
type OperationError struct {
	Code    string `json:"code"`              // such as ZONE_RESOURCE_POOL_EXHAUSTED
	Message string `json:"message,omitempty"` // of the error
	// HTTPStatus of the operation; 0 omits it, as the real API does at times.
	HTTPStatus int `json:"httpStatus,omitempty"`
	// QuotaMetric and QuotaLimit fill quotaInfo.
	QuotaMetric string  `json:"quotaMetric,omitempty"`
	QuotaLimit  float64 `json:"quotaLimit,omitempty"`
	// ZonesAvailable fills errorInfo's metadata of that name.
	ZonesAvailable string `json:"zonesAvailable,omitempty"`
}

// validate refuses a fault that would never apply.
func (f *Fault) validate() error {
	switch {
	case f.Skip < 0 || f.Count < 0 || f.DelayMillis < 0:
		return errors.New("skip, count and delayMillis must not be negative")
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("status %d: want 400 to 599", f.Status)
	case f.OperationError != nil && f.OperationError.Code == "":
		return errors.New("operationError.code is required")
	}
	if !slices.Contains([]string{"", "insert", "get", "delete", "operation", "list"}, f.Op) {
		return fmt.Errorf("op %q: want insert, get, delete, operation or list", f.Op)
	}
	return nil
}

func (f *Fault) matches(c Call) bool {
	return cmp.Or(f.Op, c.Op) == c.Op && cmp.Or(f.Zone, c.Zone) == c.Zone && cmp.Or(f.Name, c.Name) == c.Name
}

// wait delays the request. It returns false when the client cancelled it.
func (f *Fault) wait(r *http.Request) bool {
	select {
	case <-time.After(time.Duration(f.DelayMillis) * time.Millisecond):
		return true
	case <-r.Context().Done():
		return false
	}
}

// AddFault adds a fault after the existing ones. It panics on an invalid one, which is
// a bug of the test.
func (s *Server) AddFault(f Fault) {
	if err := f.validate(); err != nil {
		panic(fmt.Sprintf("gcestandin: fault: %v", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// ClearFaults removes all faults.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// takeFault returns the fault for a request, an empty one for none.
func (s *Server) takeFault(c Call) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if !f.matches(c) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		taken := *f
		if f.Count == 1 {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		} else if f.Count > 1 {
			f.Count--
		}
		return &taken
	}
	return &Fault{}
}
