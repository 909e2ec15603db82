package gcestandin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
)

// vm is one machine. Its status follows from the clock unless it was forced.
type vm struct {
	place
	resource *computepb.Instance
	created  time.Time
	ip       string
	forced   string
	// leaves is when it is gone; zero while nobody deletes it.
	leaves time.Time
	goneAt time.Time
	// doomed: its insert operation is going to fail, and it goes with it.
	doomed  bool
	running bool // what the Runner was last told
}

// VM is a machine for the eyes of tests and Runners.
type VM struct {
	// Zone and Name locate it.
	Zone string `json:"zone"`
	Name string `json:"name"`
	// ID is unique for ever.
	ID string `json:"id"`
	// Status such as RUNNING.
	Status string `json:"status"`
	// IP is its external address, also while it does not show yet.
	IP string `json:"ip"`
	// Labels and Metadata as inserted.
	Labels   map[string]string `json:"labels,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Created is when it was inserted.
	Created time.Time `json:"created"`
	// Resource is the resource as inserted, with what the server added.
	Resource *computepb.Instance `json:"-"`
}

func (s *Server) status(v *vm, now time.Time) string {
	t := s.opts.Timing
	switch age := now.Sub(v.created); {
	case v.forced != "":
		return v.forced
	case !v.leaves.IsZero():
		return "STOPPING"
	case age < t.Provisioning || v.doomed:
		return "PROVISIONING"
	case age < t.Provisioning+t.Staging:
		return "STAGING"
	}
	return "RUNNING"
}

// addressShows reports whether the external address is in answers by now.
func (s *Server) addressShows(v *vm, now time.Time) bool {
	t := s.opts.Timing
	return s.status(v, now) == "RUNNING" && now.Sub(v.created) >= t.Provisioning+t.Staging+t.Address
}

// wire is the resource as an answer shows it.
func (s *Server) wire(v *vm, now time.Time) *computepb.Instance {
	r := proto.CloneOf(v.resource)
	r.Status = ptr.To(s.status(v, now))
	if !s.addressShows(v, now) {
		return r
	}
	for _, nic := range r.NetworkInterfaces {
		for _, access := range nic.AccessConfigs {
			access.NatIP = ptr.To(v.ip)
		}
	}
	return r
}

func (s *Server) view(v *vm, now time.Time) VM {
	metadata := map[string]string{}
	for _, item := range v.resource.GetMetadata().GetItems() {
		metadata[item.GetKey()] = item.GetValue()
	}
	return VM{
		Zone: v.zone, Name: v.name, ID: strconv.FormatUint(v.resource.GetId(), 10),
		Status: s.status(v, now), IP: v.ip, Labels: maps.Clone(v.resource.GetLabels()),
		Metadata: metadata, Created: v.created, Resource: proto.CloneOf(v.resource),
	}
}

// VMs returns all VMs that exist, by zone and name.
func (s *Server) VMs() []VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	now := s.opts.Clock.Now()
	out := make([]VM, 0, len(s.vms))
	for _, v := range s.sorted() {
		out = append(out, s.view(v, now))
	}
	return out
}

func (s *Server) sorted() []*vm {
	return slices.SortedFunc(maps.Values(s.vms), func(a, b *vm) int {
		if c := strings.Compare(a.zone, b.zone); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
}

// add gives a validated resource an identity and makes it exist.
func (s *Server) add(zone string, r *computepb.Instance) *vm {
	now := s.opts.Clock.Now()
	s.lastID++
	s.lastIP++
	// Real timestamps carry the offset of Google's home.
	home := time.FixedZone("", -7*60*60)
	r.Id = ptr.To(s.lastID)
	r.Kind = ptr.To("compute#instance")
	r.CreationTimestamp = ptr.To(now.In(home).Format("2006-01-02T15:04:05.000-07:00"))
	r.Zone = ptr.To(s.url("zones/" + zone))
	r.SelfLink = ptr.To(s.url("zones/" + zone + "/instances/" + r.GetName()))
	v := &vm{place: place{zone, r.GetName()}, resource: r, created: now, ip: s.address()}
	s.vms[v.place] = v
	s.changed("inserted", v)
	return v
}

func (s *Server) address() string {
	if s.opts.Runner != nil {
		return s.opts.Runner.Address(s.lastIP)
	}
	return fmt.Sprintf("203.%d.%d.%d", s.lastIP>>16&255, s.lastIP>>8&255, s.lastIP&255)
}

func (s *Server) url(path string) string {
	return "https://www.googleapis.com/compute/v1/projects/" + s.opts.Project + "/" + path
}

// remove makes a VM not exist.
func (s *Server) remove(v *vm, at time.Time) {
	v.goneAt = at
	s.gone = append(s.gone, v)
	delete(s.vms, v.place)
	s.stop(v)
	s.changed("removed", v)
}

func (s *Server) changed(kind string, v *vm) {
	if s.opts.OnChange != nil {
		s.opts.OnChange(Change{Kind: kind, VM: s.view(v, s.opts.Clock.Now())})
	}
}

// advance lets everything happen that is due.
func (s *Server) advance() {
	now := s.opts.Clock.Now()
	for _, o := range s.operations {
		s.finish(o, now)
	}
	for _, v := range s.vms {
		if !v.leaves.IsZero() && !now.Before(v.leaves) {
			s.remove(v, v.leaves)
		}
	}
	s.gone = slices.DeleteFunc(s.gone, func(v *vm) bool {
		return now.Sub(v.goneAt) > s.opts.Timing.ListLag
	})
	if s.opts.Runner == nil {
		return
	}
	for _, v := range s.sorted() {
		s.animate(v, now)
	}
}

// animate starts or stops a VM's life to fit its status.
func (s *Server) animate(v *vm, now time.Time) {
	should := s.status(v, now) == "RUNNING"
	if should && !v.running {
		v.running = true
		if err := s.opts.Runner.Start(s.view(v, now)); err != nil {
			s.opts.Log.Error("start of a VM's process failed", "vm", v.name, "err", err)
		}
	}
	if !should {
		s.stop(v)
	}
}

func (s *Server) stop(v *vm) {
	if v.running {
		v.running = false
		s.opts.Runner.Stop(v.zone, v.name)
	}
}
