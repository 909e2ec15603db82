package providertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Type of Memory in a provider config.
const Type = "memory"

// Constructor is Memory's constructor for a registry. Its block has no fields.
func Constructor(_ context.Context, e providers.Entry, installation string) (provider.Cloud, error) {
	var cfg struct{}
	if err := e.Decode(&cfg); err != nil {
		return nil, err
	}
	return NewMemory(installation), nil
}

// Memory is a cloud of instances that run at once and do nothing. Every zone exists.
type Memory struct {
	installation string

	mu        sync.Mutex
	last      int
	instances map[provider.Ref]provider.Instance
	requests  map[string]provider.Operation
}

// NewMemory returns an empty cloud.
func NewMemory(installation string) *Memory {
	return &Memory{installation: installation, instances: map[provider.Ref]provider.Instance{}, requests: map[string]provider.Operation{}}
}

// Account is one for the whole process.
func (m *Memory) Account() string { return Type + "/" + m.installation }

// MaxInstances is 0: no limit.
func (m *Memory) MaxInstances() int { return 0 }

// ProviderID is ZONE/NAME.
func (m *Memory) ProviderID(r provider.Ref) string { return r.Zone + "/" + r.Name }

// ParseProviderID is the inverse of ProviderID.
func (m *Memory) ParseProviderID(id string) (provider.Ref, error) {
	zone, name, ok := strings.Cut(id, "/")
	if !ok || zone == "" || name == "" || strings.Contains(name, "/") {
		return provider.Ref{}, fmt.Errorf("provider id %q: want ZONE/NAME", id)
	}
	return provider.Ref{Zone: zone, Name: name}, nil
}

// begin locks, unless the context has ended.
func (m *Memory) begin(ctx context.Context, op, target string) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, &provider.Error{Class: provider.ErrTransient, Op: op, Target: target, Unsure: true, Err: err}
	}
	m.mu.Lock()
	return m.mu.Unlock, nil
}

func refused(class error, op, target, why string) error {
	return &provider.Error{Class: class, Op: op, Target: target, Err: errors.New(why)}
}

func (m *Memory) nextID() string {
	m.last++
	return strconv.Itoa(m.last)
}

func (m *Memory) done(ref provider.Ref, id string) provider.Operation {
	return provider.Operation{Zone: ref.Zone, Name: "operation-" + m.nextID(), Done: true, TargetID: id}
}

// Insert makes a running instance.
func (m *Memory) Insert(ctx context.Context, r provider.InsertRequest) (provider.Operation, error) {
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
func (m *Memory) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
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
func (m *Memory) Delete(ctx context.Context, ref provider.Ref, _ string) (provider.Operation, error) {
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
func (m *Memory) Operation(ctx context.Context, _, name string) (provider.Operation, error) {
	unlock, err := m.begin(ctx, "operation", name)
	if err != nil {
		return provider.Operation{}, err
	}
	defer unlock()
	return provider.Operation{}, refused(provider.ErrNotFound, "operation", name, "it has ended")
}

// List returns all instances.
func (m *Memory) List(ctx context.Context) (provider.Listing, error) {
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
