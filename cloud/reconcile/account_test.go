package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// realTime runs a reconciler of the harness with the real clock.
func realTime(t *testing.T, b *harness, change func(*Options)) *Reconciler {
	t.Helper()
	opts := b.opts
	opts.Clock = clock.RealClock{}
	opts.ListInterval = 50 * time.Millisecond
	if change != nil {
		change(&opts)
	}
	e := New(opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); e.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return e
}

// Many concurrent callers and occasional faults, in real time: for the race detector,
// and for the two invariants.
func TestReconcilerUnderLoad(t *testing.T) {
	t.Parallel()
	b := newHarness(t, harnessConfig{})
	for _, f := range []gcestandin.Fault{
		{Op: "insert", Skip: 3, Count: 2, DropAnswer: true}, {Op: "insert", Skip: 9, Count: 2, Status: 403, Reason: "resourceNotReady"},
		{Op: "delete", Skip: 2, Count: 2, DropAnswer: true}, {Op: "get", Skip: 4, Count: 3, Status: 503}, {Op: "list", Skip: 5, Count: 2, Status: 500},
	} {
		b.gce.AddFault(f)
	}
	e := realTime(t, b, nil)
	var all sync.WaitGroup
	for i := range 12 {
		p := b.proxy(i)
		all.Go(func() { p.liveOn(t, e) })
	}
	all.Wait()
	assert.Empty(t, b.gce.VMs())
}

// liveOn requests an instance, its replacement, and its deletion.
func (p *hookProxy) liveOn(t *testing.T, e *Reconciler) {
	limit := time.After(time.Minute)
	goal := 0
	for goal < 3 {
		select {
		case <-limit:
			assert.Fail(t, "not over", "%s is at goal %d", p.req.Proxy, goal)
			return
		case <-time.After(5 * time.Millisecond):
		}
		if goal == 2 {
			got, err := e.Delete("gcp-eu", p.name(), p.req.UID, "")
			if err == nil && got.State == adapter.StateAbsent {
				assert.Empty(t, p.vms())
				goal++
			}
			continue
		}
		got, err := e.Put("gcp-eu", p.name(), p.req)
		switch {
		case err != nil || got.State != adapter.StateRunning:
		case goal == 0:
			p.req.Replace, goal = got.InstanceID, 1
		case got.InstanceID != p.req.Replace:
			goal = 2
		}
	}
}

// stuck is a cloud whose lists block until they are cancelled.
type stuck struct {
	provider.Cloud
	lists atomic.Int32
}

func (s *stuck) List(ctx context.Context) (provider.Listing, error) {
	s.lists.Add(1)
	<-ctx.Done()
	return provider.Listing{}, ctx.Err()
}

func TestHangingListTimesOutAndIsRetried(t *testing.T) {
	s := &stuck{}
	b := newHarness(t, harnessConfig{wrap: func(c provider.Cloud) provider.Cloud { s.Cloud = c; return s }})
	e := realTime(t, b, func(o *Options) { o.CallTimeout = 30 * time.Millisecond })
	require.Eventually(t, func() bool { return s.lists.Load() >= 3 }, 20*time.Second, time.Millisecond)
	_, err := e.Put("gcp-eu", b.proxy(1).name(), b.proxy(1).req)
	require.ErrorIs(t, err, adapter.ErrNotReady)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// A loop that does not sleep while a list takes longer than its interval would use a
// whole CPU and slow down every hook.
func TestLoopSleepsWhileAListIsSlow(t *testing.T) {
	s := &stuck{}
	b := newHarness(t, harnessConfig{wrap: func(c provider.Cloud) provider.Cloud { s.Cloud = c; return s }})
	a := b.reconciler.accounts[0]
	jobs, _ := a.step()
	require.Len(t, jobs, 1)
	b.clock.Step(time.Minute) // the next list is overdue
	jobs, next := a.step()
	assert.Empty(t, jobs)
	assert.Zero(t, next, "nothing to do before the list ends")
}

func TestRunEndsWhenItsCallsHaveEnded(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	slow := &lingering{entered: make(chan struct{}), leave: make(chan struct{})}
	opts := b.opts
	slow.Cloud = opts.Providers[0].Cloud
	opts.Providers = []provider.Named{{Name: "gcp-eu", Type: "gcp", Cloud: slow}}
	opts.Clock = clock.RealClock{}
	e := New(opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.Run(ctx) }()
	<-slow.entered
	cancel()
	select {
	case <-done:
		t.Fatal("a call is still under way: the lease must not be released yet")
	case <-time.After(50 * time.Millisecond):
	}
	close(slow.leave)
	<-done
}

// lingering is a cloud whose list ignores its context.
type lingering struct {
	provider.Cloud
	once           sync.Once
	entered, leave chan struct{}
}

func (l *lingering) List(context.Context) (provider.Listing, error) {
	l.once.Do(func() { close(l.entered) })
	<-l.leave
	return provider.Listing{}, errors.New("too late")
}

func TestGuardBlocksAllMutations(t *testing.T) {
	guard := &switchGuard{}
	b := newHarness(t, harnessConfig{wrap: func(c provider.Cloud) provider.Cloud { return provider.WithGuard(c, guard) }})
	p, other := b.proxy(1), b.proxy(2)
	p.running()
	guard.no.Store(true)
	p.delete()
	b.pass(time.Minute)
	other.put()
	b.pass(5 * time.Minute)
	assert.Equal(t, 1, b.count("insert"))
	assert.Zero(t, b.count("delete"))
	got := other.put()
	assert.Equal(t, adapter.StateAbsent, got.State, "nothing was sent")
	guard.no.Store(false)
	p.absent()
	other.running()
}

type switchGuard struct{ no atomic.Bool }

func (g *switchGuard) Writer() (time.Time, error) {
	if g.no.Load() {
		return time.Time{}, fmt.Errorf("the lease ran out")
	}
	return time.Time{}, nil
}

// Row D7: reads per object exhaust a project's quota. A thousand idle Proxies cost at
// most twenty calls a minute.
func TestD7ThousandProxiesAtRestCostTwentyCallsAMinute(t *testing.T) {
	const proxies, minutes = 1000, 1
	b := newHarness(t, harnessConfig{})
	ps := make([]*hookProxy, proxies)
	b.drive()
	for i := range ps {
		ps[i] = b.proxy(i)
		ps[i].put()
	}
	b.pass(15 * time.Second)
	require.Len(t, b.gce.VMs(), proxies)

	b.gce.ForgetCalls()
	for range minutes {
		for _, p := range ps { // the drift poll of the hooks
			require.Equal(t, adapter.StateRunning, p.put().State)
		}
		b.pass(time.Minute)
	}
	calls := b.gce.Calls()
	perMinute := float64(len(calls)) / minutes
	t.Logf("%.1f calls a minute for %d Proxies", perMinute, proxies)
	assert.LessOrEqual(t, perMinute, 20.0)
	for _, c := range calls {
		assert.Equal(t, "list", c.Op, "nothing is read one by one")
	}
}

func TestMutationsAreThrottledByTheBucket(t *testing.T) {
	b := newHarness(t, harnessConfig{change: func(o *Options) {
		o.Bucket = provider.NewBucket(2, 5)
		o.Concurrency = 100
	}})
	b.drive()
	ps := make([]*hookProxy, 30)
	for i := range ps {
		ps[i] = b.proxy(i)
		ps[i].put()
	}
	b.drive()
	assert.Equal(t, 5, b.count("insert"), "the burst")
	b.pass(5 * time.Second)
	assert.Equal(t, 15, b.count("insert"))
	b.pass(time.Minute)
	assert.Equal(t, 30, b.count("insert"))

	for _, p := range ps {
		p.delete()
	}
	b.drive()
	assert.Equal(t, 5, b.count("delete"), "deletes pass the same bucket")
	b.pass(5 * time.Second)
	assert.Equal(t, 15, b.count("delete"))
}

// Deletions free capacity, so that they go first.
func TestDeletionsGoBeforeInserts(t *testing.T) {
	b := newHarness(t, harnessConfig{change: func(o *Options) { o.Bucket = provider.NewBucket(1, 4) }})
	b.drive()
	var old, fresh []*hookProxy
	for i := range 4 {
		old = append(old, b.proxy(i))
		old[i].put()
	}
	b.pass(30 * time.Second)
	require.Equal(t, 4, b.count("insert"))
	for i := range 4 {
		fresh = append(fresh, b.proxy(100+i))
		fresh[i].put()
		old[i].delete()
	}
	b.drive()
	assert.Equal(t, 4, b.count("delete"))
	assert.Equal(t, 4, b.count("insert"))
	for _, p := range fresh {
		p.running()
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	b := newHarness(t, harnessConfig{change: func(o *Options) { o.Concurrency = 3 }})
	b.drive()
	for i := range 10 {
		b.proxy(i).put()
	}
	jobs, _ := b.reconciler.accounts[0].step()
	assert.Len(t, jobs, 3)
	more, _ := b.reconciler.accounts[0].step()
	assert.Empty(t, more)
	for _, j := range jobs {
		b.reconciler.accounts[0].do(t.Context(), j)
	}
	b.drive()
	assert.Equal(t, 10, b.count("insert"))
}

func TestPollingOfAnOperationBacksOff(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: gcestandin.Timing{Insert: time.Minute}})
	b.drive()
	b.proxy(1).put()
	b.pass(time.Minute)
	assert.LessOrEqual(t, b.count("operation"), 7)
	assert.GreaterOrEqual(t, b.count("operation"), 4)
}
