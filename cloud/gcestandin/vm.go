package gcestandin

import (
	"cmp"
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

// vm is one machine. Its status follows from the clock unless it is forced.
type vm struct {
	place
	resource *computepb.Instance
	created  time.Time
	ip       string
	forced   string
	// leaves is when it is removed; zero without a delete.
	leaves time.Time
	goneAt time.Time
	// doomed: its insert operation will fail and remove it.
	doomed  bool
	running bool // in the Runner
}

// VM is a machine as tests and Runners see it.
type VM struct {
	// Zone and Name locate it.
	Zone   string `json:"zone"`
	Name   string `json:"name"`
	ID     string `json:"id"`     // unique for ever
	Status string `json:"status"` // such as RUNNING
	IP     string `json:"ip"`     // its external address, even before responses contain it
	// Labels and Metadata as inserted.
	Labels   map[string]string   `json:"labels,omitempty"`
	Metadata map[string]string   `json:"metadata,omitempty"`
	Created  time.Time           `json:"created"` // when it was inserted
	Resource *computepb.Instance `json:"-"`       // as inserted, with the fields that the server set
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

// addressShows reports whether responses contain the external address.
func (s *Server) addressShows(v *vm, now time.Time) bool {
	t := s.opts.Timing
	return s.status(v, now) == "RUNNING" && now.Sub(v.created) >= t.Provisioning+t.Staging+t.Address
}

// wire is the resource in a response.
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
		return cmp.Or(strings.Compare(a.zone, b.zone), strings.Compare(a.name, b.name))
	})
}

// add sets the server's fields of a validated resource and adds the VM.
func (s *Server) add(zone string, r *computepb.Instance) *vm {
	now := s.opts.Clock.Now()
	s.lastID++
	s.lastIP++
	// Real timestamps carry the UTC offset of California.
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

// remove removes a VM.
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

// advance applies everything that is due.
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

// animate starts or stops a VM in the Runner, by its status.
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

// statuses of Compute v1.
var statuses = []string{
	"PENDING", "PROVISIONING", "STAGING", "RUNNING", "PENDING_STOP", "STOPPING", "STOPPED",
	"TERMINATED", "SUSPENDING", "SUSPENDED", "REPAIRING", "DEPROVISIONING",
}

// SetStatus forces a VM's status, which may be one that Compute does not have; ""
// makes it follow the clock again. The error means that there is no such VM.
func (s *Server) SetStatus(zone, name, status string) error {
	return s.change(zone, name, func(v *vm) { v.forced = status })
}

// Preempt takes a VM away as Compute does with Spot VMs: by its termination action,
// the VM is deleted or TERMINATED.
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

// Readdress changes a VM's external address, as a stop and start does.
func (s *Server) Readdress(zone, name, ip string) error {
	return s.change(zone, name, func(v *vm) { v.ip = ip })
}

// Remove deletes a VM at once, as a user with a console may.
func (s *Server) Remove(zone, name string) error {
	return s.change(zone, name, func(v *vm) { v.leaves = s.opts.Clock.Now() })
}

// Add adds a VM without an insert and returns its id.
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

// AddImage adds an image, when Options.Images limits them.
func (s *Server) AddImage(image string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Images != nil {
		s.opts.Images = append(slices.Clone(s.opts.Images), image)
	}
}
