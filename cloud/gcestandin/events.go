package gcestandin

import (
	"fmt"
	"slices"
	"strconv"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
)

// statuses are the twelve of Compute v1.
func statuses() []string {
	return []string{
		"PENDING", "PROVISIONING", "STAGING", "RUNNING", "PENDING_STOP", "STOPPING", "STOPPED",
		"TERMINATED", "SUSPENDING", "SUSPENDED", "REPAIRING", "DEPROVISIONING",
	}
}

// SetStatus forces a VM's status, also one that Compute does not know; "" lets
// it follow the clock again. The error says that there is no such VM.
func (s *Server) SetStatus(zone, name, status string) error {
	return s.change(zone, name, func(v *vm) { v.forced = status })
}

// Preempt takes a VM away as Compute does with Spot ones: the VM is deleted or
// TERMINATED, as its termination action says.
func (s *Server) Preempt(zone, name string) error {
	return s.change(zone, name, func(v *vm) {
		if v.resource.GetScheduling().GetInstanceTerminationAction() == "DELETE" {
			v.leaves = s.opts.Clock.Now().Add(s.opts.Timing.Delete)
			return
		}
		v.forced = "TERMINATED"
	})
}

// Protect switches a VM's deletion protection.
func (s *Server) Protect(zone, name string, on bool) error {
	return s.change(zone, name, func(v *vm) { v.resource.DeletionProtection = ptr.To(on) })
}

// Relabel replaces a VM's labels.
func (s *Server) Relabel(zone, name string, labels map[string]string) error {
	return s.change(zone, name, func(v *vm) { v.resource.Labels = labels })
}

// Readdress gives a VM another external address, as a stop and start does.
func (s *Server) Readdress(zone, name, ip string) error {
	return s.change(zone, name, func(v *vm) { v.ip = ip })
}

// Remove deletes a VM at once, as somebody with a console might.
func (s *Server) Remove(zone, name string) error {
	return s.change(zone, name, func(v *vm) { v.leaves = s.opts.Clock.Now() })
}

// Add makes a VM exist that nobody inserted, and returns its id.
func (s *Server) Add(zone string, r *computepb.Instance) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bad := s.checkInsert(zone, r); bad != nil {
		return "", fmt.Errorf("add VM: %s", bad.Message)
	}
	v := s.add(zone, proto.CloneOf(r))
	return strconv.FormatUint(v.resource.GetId(), 10), nil
}

func (s *Server) change(zone, name string, f func(*vm)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	v := s.vms[place{zone, name}]
	if v == nil {
		return fmt.Errorf("no VM %s in zone %s", name, zone)
	}
	f(v)
	s.changed("changed", v)
	s.advance()
	return nil
}

// AddImage makes an image exist, once Options.Images limits them.
func (s *Server) AddImage(image string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Images != nil && !slices.Contains(s.opts.Images, image) {
		s.opts.Images = append(slices.Clone(s.opts.Images), image)
	}
}
