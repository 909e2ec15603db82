package gcestandin

import (
	"context"
	"time"
)

// Runner gives VMs a life while they are RUNNING. Its methods are called under
// the server's lock: they must not call the server, and must be quick.
type Runner interface {
	// Address returns the external address of the nth VM, n from 1.
	Address(n int) string
	// Start starts what the VM does. The error is logged; the VM stays RUNNING,
	// as a real one does whose software fails.
	Start(VM) error
	// Stop ends what Start started, if it still runs.
	Stop(zone, name string)
}

// Run lets VMs of a Runner live as time passes, and stops all of them when ctx
// ends. Without a Runner it is not needed.
func (s *Server) Run(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		s.VMs()
		select {
		case <-ctx.Done():
			s.stopAll()
			return
		case <-ticker.C:
		}
	}
}

func (s *Server) stopAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.vms {
		s.stop(v)
	}
}
