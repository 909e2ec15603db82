package gcestandin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// control adds the HTTP surface that scripts a server that runs as a process:
//
//	GET    /control/vms                       all VMs
//	GET    /control/calls                     all requests on the Compute wire
//	DELETE /control/calls                     forget them
//	POST   /control/faults                    add a Fault
//	DELETE /control/faults                    remove all faults
//	PUT    /control/zones/{zone}              {"mode": "unreachable" | "unreachable-late" | "silent" | ""}
//	POST   /control/vms/{zone}/{name}/preempt
//	POST   /control/vms/{zone}/{name}/remove
//	PUT    /control/vms/{zone}/{name}         {"status": "TERMINATED", "protected": true}
func (s *Server) control(mux *http.ServeMux) {
	mux.HandleFunc("GET /control/vms", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.VMs()) })
	mux.HandleFunc("GET /control/calls", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Calls()) })
	mux.HandleFunc("DELETE /control/calls", func(w http.ResponseWriter, _ *http.Request) {
		s.ForgetCalls()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /control/faults", s.controlFault)
	mux.HandleFunc("DELETE /control/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("PUT /control/zones/{zone}", s.controlZone)
	mux.HandleFunc("PUT /control/vms/{zone}/{name}", s.controlVM)
	mux.HandleFunc("POST /control/vms/{zone}/{name}/preempt", func(w http.ResponseWriter, r *http.Request) {
		finish(w, s.Preempt(r.PathValue("zone"), r.PathValue("name")))
	})
	mux.HandleFunc("POST /control/vms/{zone}/{name}/remove", func(w http.ResponseWriter, r *http.Request) {
		finish(w, s.Remove(r.PathValue("zone"), r.PathValue("name")))
	})
}

func (s *Server) controlFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if !readJSON(w, r, &f) {
		return
	}
	if err := f.validate(); err != nil {
		http.Error(w, "fault: "+err.Error(), http.StatusBadRequest)
		return
	}
	s.AddFault(f)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) controlZone(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Mode ZoneMode `json:"mode"`
	}
	if !readJSON(w, r, &body) {
		return
	}
	zone := r.PathValue("zone")
	switch {
	case !slices.Contains(s.opts.Zones, zone):
		http.Error(w, fmt.Sprintf("no zone %q", zone), http.StatusNotFound)
	case !body.Mode.known():
		http.Error(w, fmt.Sprintf("mode %q: want unreachable, unreachable-late, silent or nothing", body.Mode), http.StatusBadRequest)
	default:
		s.SetZone(zone, body.Mode)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) controlVM(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Status    *string `json:"status"`
		Protected *bool   `json:"protected"`
	}
	if !readJSON(w, r, &body) {
		return
	}
	zone, name := r.PathValue("zone"), r.PathValue("name")
	if body.Status != nil && *body.Status != "" && !slices.Contains(statuses(), *body.Status) {
		http.Error(w, fmt.Sprintf("status %q: want one of %v, or nothing", *body.Status, statuses()), http.StatusBadRequest)
		return
	}
	var err error
	if body.Status != nil {
		err = s.SetStatus(zone, name, *body.Status)
	}
	if body.Protected != nil && err == nil {
		err = s.Protect(zone, name, *body.Protected)
	}
	finish(w, err)
}

func finish(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		http.Error(w, "body: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n'))
}
