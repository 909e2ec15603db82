package leader

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }

func record(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}
}

// unit is a lease on a fake client and a clock that tests move.
func unit(identity string, client kubernetes.Interface) (*Lease, *clocktesting.FakePassiveClock) {
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	return New(Config{
		Client: client, Namespace: "ns", Name: "cloud-inst", Identity: identity,
		Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Clock: clk, Log: slog.New(slog.DiscardHandler),
	}), clk
}

func TestWriterCountsFromTheMomentTheRenewalWasSent(t *testing.T) {
	l, clk := unit("a", fake.NewClientset())
	_, err := l.Writer()
	require.ErrorIs(t, err, ErrNotHeld)

	start := clk.Now()
	require.NoError(t, l.lock.Create(t.Context(), record("a")))
	until, err := l.Writer()
	require.NoError(t, err)
	assert.Equal(t, start.Add(14*time.Second), until, "calls end before anybody else may act")

	clk.SetTime(start.Add(10*time.Second - 1))
	_, err = l.Writer()
	require.NoError(t, err)
	clk.SetTime(start.Add(10 * time.Second))
	_, err = l.Writer()
	require.ErrorIs(t, err, ErrNotHeld)
	assert.ErrorContains(t, err, "10s ago")
}

// slowLock answers writes late.
type slowLock struct {
	resourcelock.Interface
	delay func()
}

func (s slowLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	s.delay()
	return nil
}

func TestSlowAnswerToARenewalDoesNotStretchIt(t *testing.T) {
	l, clk := unit("a", fake.NewClientset())
	l.lock.Interface = slowLock{delay: func() { clk.SetTime(clk.Now().Add(9 * time.Second)) }}
	require.NoError(t, l.lock.Update(t.Context(), record("a")))
	_, err := l.Writer()
	require.NoError(t, err)
	clk.SetTime(clk.Now().Add(time.Second))
	_, err = l.Writer()
	require.ErrorIs(t, err, ErrNotHeld)
}

func TestFailedRenewalDoesNotCount(t *testing.T) {
	l, clk := unit("a", fake.NewClientset())
	require.NoError(t, l.lock.Create(t.Context(), record("a")))
	clk.SetTime(clk.Now().Add(9 * time.Second))
	require.Error(t, l.lock.Create(t.Context(), record("a")), "it exists")
	clk.SetTime(clk.Now().Add(time.Second))
	_, err := l.Writer()
	assert.ErrorIs(t, err, ErrNotHeld)
}

func TestSeeingAnotherHolderEndsItAtOnce(t *testing.T) {
	client := fake.NewClientset()
	a, _ := unit("a", client)
	b, _ := unit("b", client)
	require.NoError(t, a.lock.Create(t.Context(), record("a")))
	_, _, err := b.lock.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.lock.Update(t.Context(), record("b")))
	_, _, err = a.lock.Get(t.Context())
	require.NoError(t, err)
	_, err = a.Writer()
	assert.ErrorIs(t, err, ErrNotHeld)
	_, err = b.Writer()
	assert.NoError(t, err)
}

// client-go releases after a read whose holder it does not look at: a process
// that was frozen past its lease would give away its successor's.
func TestALeaseThatIsNotOursIsNotReleased(t *testing.T) {
	client := fake.NewClientset()
	a, _ := unit("a", client)
	b, _ := unit("b", client)
	require.NoError(t, a.lock.Create(t.Context(), record("a")))
	_, _, err := b.lock.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.lock.Update(t.Context(), record("b")))

	_, _, err = a.lock.Get(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, a.lock.Update(t.Context(), record("")), ErrNotHeld)
	lease, err := client.CoordinationV1().Leases("ns").Get(t.Context(), "cloud-inst", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "b", *lease.Spec.HolderIdentity)
}

func TestALeaseInUseIsNotReleased(t *testing.T) {
	l, _ := unit("a", fake.NewClientset())
	require.NoError(t, l.lock.Create(t.Context(), record("a")))
	l.lock.working(true)
	require.ErrorContains(t, l.lock.Update(t.Context(), record("")), "calls are in flight")
	l.lock.working(false)
	require.NoError(t, l.lock.Update(t.Context(), record("")))
	_, err := l.Writer()
	assert.ErrorIs(t, err, ErrNotHeld)
}

// client-go waits for as long as the lease lasts from the moment at which it first saw a
// raw record. A process that starts during an outage must not wait twice.
func TestAfterAnOutageTheLeasesDurationCountsAnewOnce(t *testing.T) {
	client := fake.NewClientset()
	a, _ := unit("a", client)
	b, _ := unit("b", client)
	require.NoError(t, a.lock.Create(t.Context(), record("a")))
	healthy := b.lock.Interface
	read := func() string {
		seen, raw, err := b.lock.Get(t.Context())
		require.NoError(t, err, "client-go must see the record, to begin to count")
		require.Equal(t, "a", seen.HolderIdentity)
		return string(raw)
	}
	before := read()
	for range 2 {
		b.lock.Interface = deafLock{healthy}
		_, _, err := b.lock.Get(t.Context())
		require.Error(t, err)
		b.lock.Interface = healthy
		after := read()
		assert.NotEqual(t, before, after, "the holder has had no chance to renew")
		assert.Equal(t, after, read(), "it has, and has not used it")
		before = after
	}
}

// deafLock cannot read.
type deafLock struct{ resourcelock.Interface }

func (deafLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, errors.New("the API server is away")
}

// lasts is how long the leases of an arena do: no stall of a busy machine may end one.
const lasts = 6 * time.Second

// arena runs several contenders against a real API server and notes who leads.
type arena struct {
	t       *testing.T
	name    string
	leaders atomic.Int32
	most    atomic.Int32
}

type contender struct {
	lease  *Lease
	cancel context.CancelFunc
	ended  chan error
	cut    *cutTransport
	leads  atomic.Bool
	terms  atomic.Int32
}

// cutTransport fails every request once cut, and counts those that were answered.
type cutTransport struct {
	http.RoundTripper
	cut      atomic.Bool
	answered atomic.Int32
}

func (c *cutTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut.Load() {
		return nil, errors.New("the network is gone")
	}
	resp, err := c.RoundTripper.RoundTrip(r)
	c.answered.Add(1)
	return resp, err
}

func (a *arena) enter(identity string) *contender {
	a.t.Helper()
	c := &contender{ended: make(chan error, 1), cut: &cutTransport{}}
	cfg := rest.CopyConfig(shared.Get(a.t).RESTConfig())
	cfg.QPS, cfg.Burst = 100, 100
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { c.cut.RoundTripper = rt; return c.cut })
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(a.t, err)
	c.lease = New(Config{
		Client: client, Namespace: "default", Name: a.name, Identity: identity,
		Duration: lasts, RenewDeadline: 4 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() { c.ended <- c.lease.Run(ctx, func(ctx context.Context) { a.lead(ctx, c) }) }()
	a.t.Cleanup(func() { c.cut.cut.Store(false); c.quit(a.t) })
	return c
}

func (c *contender) quit(t *testing.T) {
	c.cancel()
	require.NoError(t, <-c.ended)
	c.ended <- nil
}

func (a *arena) lead(ctx context.Context, c *contender) {
	n := a.leaders.Add(1)
	for m := a.most.Load(); n > m && !a.most.CompareAndSwap(m, n); m = a.most.Load() {
	}
	c.leads.Store(true)
	c.terms.Add(1)
	<-ctx.Done()
	c.leads.Store(false)
	a.leaders.Add(-1)
}

func (c *contender) mayWrite() bool { _, err := c.lease.Writer(); return err == nil }

// spec is the spec of the Lease object.
func (a *arena) spec() coordinationv1.LeaseSpec {
	a.t.Helper()
	l := controlplanetest.Lease(a.t, shared.Get(a.t).RESTConfig(), "default", a.name)
	require.NotNil(a.t, l)
	return l.Spec
}

func TestOneAtATimeAndAtOnceAfterARelease(t *testing.T) {
	a := &arena{t: t, name: "release"}
	first := a.enter("first")
	testwait.Eventually(t, "the first leads", first.leads.Load)
	second := a.enter("second")
	begun := a.spec().RenewTime.Time
	testwait.Eventually(t, "renewed for longer than the lease lasts", func() bool { return a.spec().RenewTime.Sub(begun) > lasts })
	assert.Zero(t, second.terms.Load())
	assert.True(t, first.mayWrite())
	assert.False(t, second.mayWrite())

	first.quit(t)
	assert.False(t, first.mayWrite())
	assert.NotEqual(t, "first", ptr.Deref(a.spec().HolderIdentity, ""), "released: nobody waits until it runs out")
	testwait.Eventually(t, "the second leads", second.leads.Load)
	assert.Equal(t, int32(1), a.most.Load())
}

func TestLeaderThatLosesTheAPIServerStopsBeforeItsSuccessorActs(t *testing.T) {
	a := &arena{t: t, name: "partition"}
	first := a.enter("first")
	testwait.Eventually(t, "the first leads", first.leads.Load)
	second := a.enter("second")
	first.cut.cut.Store(true)
	var mu sync.Mutex
	both := false
	testwait.Eventually(t, "the second leads", func() bool {
		mu.Lock()
		defer mu.Unlock()
		both = both || first.mayWrite() && second.mayWrite()
		return second.leads.Load()
	})

	assert.False(t, both)
	assert.False(t, first.mayWrite())
	assert.False(t, first.leads.Load())

	answered := first.cut.answered.Load()
	first.cut.cut.Store(false)
	testwait.Eventually(t, "the first has looked again and again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		both = both || first.mayWrite()
		return first.cut.answered.Load() >= answered+5
	})

	assert.False(t, both, "its return disturbs nobody")
	assert.True(t, second.mayWrite())
	assert.Equal(t, int32(1), second.terms.Load())
	second.quit(t)
	testwait.Eventually(t, "the first leads again", func() bool { return first.terms.Load() == 2 })
	assert.Equal(t, int32(1), a.most.Load())
}

func TestQuittingWithoutEverLeading(t *testing.T) {
	a := &arena{t: t, name: "waiting"}
	first := a.enter("first")
	testwait.Eventually(t, "the first leads", first.leads.Load)
	second := a.enter("second")
	testwait.Eventually(t, "the second has looked more than once", func() bool { return second.cut.answered.Load() > 1 })
	second.quit(t)
	assert.True(t, first.mayWrite(), "it released nothing")
	assert.Zero(t, second.terms.Load())
}
