package provider

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

// Recorder takes the outcome of every call to a provider.
type Recorder interface {
	// Request says that op (insert, get, delete, operation or list) ended with
	// result, as Result puts it.
	Request(provider, op, result string, took time.Duration)
}

// WithMetrics returns a Cloud that records every call under the provider's name.
func WithMetrics(name string, c Cloud, r Recorder, clk clock.PassiveClock) Cloud {
	return &measured{Cloud: c, name: name, recorder: r, clock: clk}
}

type measured struct {
	Cloud
	name     string
	recorder Recorder
	clock    clock.PassiveClock
}

func (m *measured) record(op string, since time.Time, err error) {
	m.recorder.Request(m.name, op, Result(err), m.clock.Since(since))
}

func (m *measured) Insert(ctx context.Context, req InsertRequest) (Operation, error) {
	start := m.clock.Now()
	op, err := m.Cloud.Insert(ctx, req)
	m.record("insert", start, err)
	return op, err
}

func (m *measured) Get(ctx context.Context, ref Ref) (Instance, error) {
	start := m.clock.Now()
	inst, err := m.Cloud.Get(ctx, ref)
	m.record("get", start, err)
	return inst, err
}

func (m *measured) Delete(ctx context.Context, ref Ref, requestID string) (Operation, error) {
	start := m.clock.Now()
	op, err := m.Cloud.Delete(ctx, ref, requestID)
	m.record("delete", start, err)
	return op, err
}

func (m *measured) Operation(ctx context.Context, zone, name string) (Operation, error) {
	start := m.clock.Now()
	op, err := m.Cloud.Operation(ctx, zone, name)
	m.record("operation", start, err)
	return op, err
}

func (m *measured) List(ctx context.Context) (Listing, error) {
	start := m.clock.Now()
	l, err := m.Cloud.List(ctx)
	m.record("list", start, err)
	return l, err
}

// Guard says whether this process may change anything.
type Guard interface {
	// Writer returns nil while this process is the one that may act, together
	// with the moment until which that is certain; the zero time means for
	// ever. Otherwise its error says why not.
	Writer() (until time.Time, err error)
}

// WithGuard returns a Cloud that asks the guard right before every call that
// changes something, refuses with ErrNotWriter, and gives up on a call that
// would outlive the certainty.
func WithGuard(c Cloud, g Guard) Cloud { return &guarded{Cloud: c, guard: g} }

type guarded struct {
	Cloud
	guard Guard
}

func (g *guarded) Insert(ctx context.Context, req InsertRequest) (Operation, error) {
	ctx, cancel, err := g.allow(ctx, "insert")
	if err != nil {
		return Operation{}, err
	}
	defer cancel()
	return g.Cloud.Insert(ctx, req)
}

func (g *guarded) Delete(ctx context.Context, ref Ref, requestID string) (Operation, error) {
	ctx, cancel, err := g.allow(ctx, "delete")
	if err != nil {
		return Operation{}, err
	}
	defer cancel()
	return g.Cloud.Delete(ctx, ref, requestID)
}

func (g *guarded) allow(ctx context.Context, op string) (context.Context, context.CancelFunc, error) {
	until, err := g.guard.Writer()
	if err != nil {
		return nil, nil, fmt.Errorf("%s not sent: %w: %w", op, ErrNotWriter, err)
	}
	if until.IsZero() {
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	return ctx, cancel, nil
}
