package provider

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Record receives the outcome of every call to a provider: op (insert, get, delete,
// operation or list) ended with result, which is a value of Result.
type Record func(provider, op, result string, took time.Duration)

// WithMetrics returns a Cloud that records every call under the provider's name.
func WithMetrics(name string, c Cloud, r Record, clk clock.PassiveClock) Cloud {
	return &measured{Cloud: c, name: name, record: r, clock: clk}
}

type measured struct {
	Cloud
	name   string
	record Record
	clock  clock.PassiveClock
}

func measure[T any](m *measured, op string, call func() (T, error)) (T, error) {
	start := m.clock.Now()
	out, err := call()
	m.record(m.name, op, Result(err), m.clock.Since(start))
	return out, err
}

func (m *measured) Insert(ctx context.Context, req InsertRequest) (Operation, error) {
	return measure(m, "insert", func() (Operation, error) { return m.Cloud.Insert(ctx, req) })
}

func (m *measured) Get(ctx context.Context, ref Ref) (Instance, error) {
	return measure(m, "get", func() (Instance, error) { return m.Cloud.Get(ctx, ref) })
}

func (m *measured) Delete(ctx context.Context, ref Ref, requestID string) (Operation, error) {
	return measure(m, "delete", func() (Operation, error) { return m.Cloud.Delete(ctx, ref, requestID) })
}

func (m *measured) Operation(ctx context.Context, zone, name string) (Operation, error) {
	return measure(m, "operation", func() (Operation, error) { return m.Cloud.Operation(ctx, zone, name) })
}

func (m *measured) List(ctx context.Context) (Listing, error) {
	return measure(m, "list", func() (Listing, error) { return m.Cloud.List(ctx) })
}

// Guard decides whether this process may send mutations.
type Guard interface {
	// Writer returns until when this process holds the lease; zero means without
	// end. Its error is why the process may not act.
	Writer() (until time.Time, err error)
}

// WithGuard returns a Cloud that asks the guard before every mutation, refuses it
// with ErrNotWriter, and cancels it when the lease may have expired.
func WithGuard(c Cloud, g Guard) Cloud { return &guarded{Cloud: c, guard: g} }

type guarded struct {
	Cloud
	guard Guard
}

func (g *guarded) Insert(ctx context.Context, req InsertRequest) (Operation, error) {
	return g.mutate(ctx, "insert", func(ctx context.Context) (Operation, error) { return g.Cloud.Insert(ctx, req) })
}

func (g *guarded) Delete(ctx context.Context, ref Ref, requestID string) (Operation, error) {
	return g.mutate(ctx, "delete", func(ctx context.Context) (Operation, error) { return g.Cloud.Delete(ctx, ref, requestID) })
}

func (g *guarded) mutate(ctx context.Context, op string, call func(context.Context) (Operation, error)) (Operation, error) {
	until, err := g.guard.Writer()
	if err != nil {
		return Operation{}, fmt.Errorf("%s not sent: %w: %w", op, ErrNotWriter, err)
	}
	if until.IsZero() {
		return call(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	return call(ctx)
}

// Bucket throttles mutations. It never sleeps, so that it works with any clock.
type Bucket struct {
	limiter *rate.Limiter
}

// NewBucket allows a burst, and perSecond calls on average.
func NewBucket(perSecond float64, burst int) *Bucket {
	return &Bucket{limiter: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// Take takes a token and returns 0, or takes none and returns the time until one
// is available.
func (b *Bucket) Take(now time.Time) time.Duration {
	r := b.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
