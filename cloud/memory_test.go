package cloud

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider/providertest"
)

// memoryType is memory's in a provider config.
const memoryType = "memory"

// newMemoryFrom is memory's constructor for a registry. Its block has no fields.
func newMemoryFrom(_ context.Context, e providers.Entry, installation string) (provider.Cloud, error) {
	var cfg struct{}
	if err := e.Decode(&cfg); err != nil {
		return nil, err
	}
	return newMemory(installation), nil
}

// memory is the smallest cloud that keeps the contract, and a test that the adapter depends on no
// cloud in particular: its instances run at once and do nothing, and every zone exists.
type memory struct {
	installation string

	mu        sync.Mutex
	last      int
	instances map[provider.Ref]provider.Instance
	requests  map[string]provider.Operation
}

// newMemory returns an empty cloud.
func newMemory(installation string) *memory {
	return &memory{installation: installation, instances: map[provider.Ref]provider.Instance{}, requests: map[string]provider.Operation{}}
}

// Account is one for the whole process.
func (m *memory) Account() string { return memoryType + "/" + m.installation }

// MaxInstances is 0: no limit.
func (m *memory) MaxInstances() int { return 0 }

// ProviderID is ZONE/NAME.
func (m *memory) ProviderID(r provider.Ref) string { return r.Zone + "/" + r.Name }

// ParseProviderID is the inverse of ProviderID.
func (m *memory) ParseProviderID(id string) (provider.Ref, error) {
	zone, name, ok := strings.Cut(id, "/")
	if !ok || zone == "" || name == "" || strings.Contains(name, "/") {
		return provider.Ref{}, fmt.Errorf("provider id %q: want ZONE/NAME", id)
	}
	return provider.Ref{Zone: zone, Name: name}, nil
}

// begin locks, unless the context has ended.
func (m *memory) begin(ctx context.Context, op, target string) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, &provider.Error{Class: provider.ErrTransient, Op: op, Target: target, Unsure: true, Err: err}
	}
	m.mu.Lock()
	return m.mu.Unlock, nil
}

func refused(class error, op, target, why string) error {
	return &provider.Error{Class: class, Op: op, Target: target, Err: errors.New(why)}
}

func (m *memory) nextID() string {
	m.last++
	return strconv.Itoa(m.last)
}

func (m *memory) done(ref provider.Ref, id string) provider.Operation {
	return provider.Operation{Zone: ref.Zone, Name: "operation-" + m.nextID(), Done: true, TargetID: id}
}

// Insert makes a running instance.
func (m *memory) Insert(ctx context.Context, r provider.InsertRequest) (provider.Operation, error) {
	target := m.ProviderID(r.Ref)
	unlock, err := m.begin(ctx, "insert", target)
	if err != nil {
		return provider.Operation{}, err
	}
	defer unlock()
	if op, repeated := m.requests[r.RequestID]; repeated {
		return op, nil
	}
	if r.Want.Placement.Zone == "" {
		return provider.Operation{}, refused(provider.ErrPermanent, "insert", target, "placement.zone is required")
	}
	if _, taken := m.instances[r.Ref]; taken {
		return provider.Operation{}, refused(provider.ErrAlreadyExists, "insert", target, "the name is taken")
	}
	id := m.nextID()
	m.instances[r.Ref] = provider.Instance{
		Ref: r.Ref, ID: id, UID: r.Want.UID, Installation: r.Installation, SpecHash: r.Want.SpecHash, Port: r.Want.Port,
		State: adapter.StateRunning, Status: "up", IP: "203.0.113." + id, CreatedAt: time.Now().UTC(),
	}
	m.requests[r.RequestID] = m.done(r.Ref, id)
	return m.requests[r.RequestID], nil
}

// Get returns an instance.
func (m *memory) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	unlock, err := m.begin(ctx, "get", m.ProviderID(ref))
	if err != nil {
		return provider.Instance{}, err
	}
	defer unlock()
	vm, ok := m.instances[ref]
	if !ok {
		return vm, refused(provider.ErrNotFound, "get", m.ProviderID(ref), "there is none")
	}
	return vm, nil
}

// Delete deletes an instance at once.
func (m *memory) Delete(ctx context.Context, ref provider.Ref, _ string) (provider.Operation, error) {
	unlock, err := m.begin(ctx, "delete", m.ProviderID(ref))
	if err != nil {
		return provider.Operation{}, err
	}
	defer unlock()
	vm, ok := m.instances[ref]
	if !ok {
		return provider.Operation{}, refused(provider.ErrNotFound, "delete", m.ProviderID(ref), "there is none")
	}
	delete(m.instances, ref)
	return m.done(ref, vm.ID), nil
}

// Operation finds none: all are done when they are accepted.
func (m *memory) Operation(ctx context.Context, _, name string) (provider.Operation, error) {
	unlock, err := m.begin(ctx, "operation", name)
	if err != nil {
		return provider.Operation{}, err
	}
	defer unlock()
	return provider.Operation{}, refused(provider.ErrNotFound, "operation", name, "it has ended")
}

// List returns all instances.
func (m *memory) List(ctx context.Context) (provider.Listing, error) {
	unlock, err := m.begin(ctx, "list", m.Account())
	if err != nil {
		return provider.Listing{}, err
	}
	defer unlock()
	var out provider.Listing
	for _, vm := range m.instances {
		out.Instances = append(out.Instances, vm)
	}
	return out, nil
}

func TestMemoryKeepsTheContract(t *testing.T) {
	providertest.Run(t, func(*testing.T) providertest.Rig {
		return providertest.Rig{Cloud: newMemory(providertest.Installation), Placement: v1alpha1.Placement{Zone: "somewhere"}}
	})
}
