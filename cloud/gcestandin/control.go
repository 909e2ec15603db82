package gcestandin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// control adds the HTTP API that scripts a server that runs as a process:
//
//	GET    /control/vms                       all VMs
//	GET    /control/calls                     all requests on the Compute wire
//	DELETE /control/calls                     clear them
//	POST   /control/faults                    add a Fault
//	DELETE /control/faults                    remove all faults
//	PUT    /control/zones/{zone}              {"mode": "unreachable" | "unreachable-late" | "silent" | ""}
//	POST   /control/vms/{zone}/{name}/preempt
//	POST   /control/vms/{zone}/{name}/remove
//	PUT    /control/vms/{zone}/{name}         {"status": "TERMINATED", "protected": true}
func (s *Server) control(mux *http.ServeMux) {
	mux.HandleFunc("GET /control/vms", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.VMs()) })
	mux.HandleFunc("GET /control/calls", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Calls()) })
	for pattern, do := range map[string]func(r *http.Request) (status int, err error){
		"DELETE /control/calls":  func(*http.Request) (int, error) { s.ForgetCalls(); return 0, nil },
		"POST /control/faults":   s.controlFault,
		"DELETE /control/faults": func(*http.Request) (int, error) { s.ClearFaults(); return 0, nil },

		"PUT /control/zones/{zone}":      s.controlZone,
		"PUT /control/vms/{zone}/{name}": s.controlVM,
		"POST /control/vms/{zone}/{name}/preempt": func(r *http.Request) (int, error) {
			return http.StatusNotFound, s.Preempt(r.PathValue("zone"), r.PathValue("name"))
		},
		"POST /control/vms/{zone}/{name}/remove": func(r *http.Request) (int, error) {
			return http.StatusNotFound, s.Remove(r.PathValue("zone"), r.PathValue("name"))
		},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if status, err := do(r); err != nil {
				http.Error(w, err.Error(), status)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
}

func (s *Server) controlFault(r *http.Request) (int, error) {
	var f Fault
	if err := readJSON(r, &f); err != nil {
		return http.StatusBadRequest, err
	}
	if err := f.validate(); err != nil {
		return http.StatusBadRequest, fmt.Errorf("fault: %w", err)
	}
	s.AddFault(f)
	return 0, nil
}

func (s *Server) controlZone(r *http.Request) (int, error) {
	var body struct {
		Mode ZoneMode `json:"mode"`
	}
	if err := readJSON(r, &body); err != nil {
		return http.StatusBadRequest, err
	}
	zone := r.PathValue("zone")
	switch {
	case !slices.Contains(s.opts.Zones, zone):
		return http.StatusNotFound, fmt.Errorf("no zone %q", zone)
	case !slices.Contains(zoneModes, body.Mode):
		return http.StatusBadRequest, fmt.Errorf("mode %q: want unreachable, unreachable-late, silent or nothing", body.Mode)
	}
	s.SetZone(zone, body.Mode)
	return 0, nil
}

func (s *Server) controlVM(r *http.Request) (int, error) {
	var body struct {
		Status    *string `json:"status"`
		Protected *bool   `json:"protected"`
	}
	if err := readJSON(r, &body); err != nil {
		return http.StatusBadRequest, err
	}
	zone, name := r.PathValue("zone"), r.PathValue("name")
	if body.Status != nil && *body.Status != "" && !slices.Contains(statuses, *body.Status) {
		return http.StatusBadRequest, fmt.Errorf("status %q: want one of %v, or nothing", *body.Status, statuses)
	}
	var err error
	if body.Status != nil {
		err = s.SetStatus(zone, name, *body.Status)
	}
	if body.Protected != nil && err == nil {
		err = s.Protect(zone, name, *body.Protected)
	}
	return http.StatusNotFound, err
}

func readJSON(r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 64<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error means that the client is gone
}
