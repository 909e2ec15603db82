package gcestandin

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Fault is something that goes wrong with the requests it matches. The first
// fault that matches a request and is not used up applies.
type Fault struct {
	// Op, Zone and Name that it matches; empty matches all.
	Op   string `json:"op,omitempty"`
	Zone string `json:"zone,omitempty"`
	Name string `json:"name,omitempty"`
	// Skip lets so many matching requests pass first.
	Skip int `json:"skip,omitempty"`
	// Count is how many requests it then applies to; 0 means all.
	Count int `json:"count,omitempty"`

	// DelayMillis holds the request back, in real time.
	DelayMillis int `json:"delayMillis,omitempty"`
	// Status answers with that HTTP error and has no effect otherwise. Reason
	// and Message go into its body.
	Status  int    `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// DropRequest closes the connection and has no effect otherwise.
	DropRequest bool `json:"dropRequest,omitempty"`
	// DropAnswer does what was asked for and closes the connection without an
	// answer.
	DropAnswer bool `json:"dropAnswer,omitempty"`
	// OperationError accepts an insert or delete and lets its operation end
	// with that error. The VM of such an insert is there until then.
	OperationError *OperationError `json:"operationError,omitempty"`
	// OperationNeverEnds accepts an insert or delete and keeps its operation
	// RUNNING. What was asked for happens all the same.
	OperationNeverEnds bool `json:"operationNeverEnds,omitempty"`
}

// OperationError is how an operation fails.
type OperationError struct {
	// Code such as ZONE_RESOURCE_POOL_EXHAUSTED.
	Code string `json:"code"`
	// Message for people.
	Message string `json:"message,omitempty"`
	// HTTPStatus of the operation; 0 leaves it out, as the real API does at
	// times.
	HTTPStatus int `json:"httpStatus,omitempty"`
	// QuotaMetric and QuotaLimit fill quotaInfo.
	QuotaMetric string  `json:"quotaMetric,omitempty"`
	QuotaLimit  float64 `json:"quotaLimit,omitempty"`
	// ZonesAvailable fills errorInfo's metadata of that name.
	ZonesAvailable string `json:"zonesAvailable,omitempty"`
}

// validate refuses what would silently never apply.
func (f *Fault) validate() error {
	switch {
	case f.Skip < 0 || f.Count < 0 || f.DelayMillis < 0:
		return errors.New("skip, count and delayMillis must not be negative")
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("status %d: want 400 to 599", f.Status)
	case f.OperationError != nil && f.OperationError.Code == "":
		return errors.New("operationError.code is required")
	}
	switch f.Op {
	case "", "insert", "get", "delete", "operation", "list":
		return nil
	}
	return fmt.Errorf("op %q: want insert, get, delete, operation or list", f.Op)
}

func (f *Fault) matches(c Call) bool {
	return (f.Op == "" || f.Op == c.Op) && (f.Zone == "" || f.Zone == c.Zone) && (f.Name == "" || f.Name == c.Name)
}

// wait holds the request back and reports false when its client gave up.
func (f *Fault) wait(r *http.Request) bool {
	if f.DelayMillis == 0 {
		return true
	}
	timer := time.NewTimer(time.Duration(f.DelayMillis) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (f *Fault) apiError() *apiError {
	if f.Status == 0 {
		return nil
	}
	return &apiError{Status: f.Status, Reason: f.Reason, Message: f.Message}
}

// AddFault adds a fault after those that are there. It panics on one that
// makes no sense, which is a mistake in a test.
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

// takeFault returns the fault for a request, an empty one when there is none.
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
