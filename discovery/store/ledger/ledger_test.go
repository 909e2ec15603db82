package ledger

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kept is a journal that keeps the state in maps, as a file would.
type kept struct {
	leases    map[string]Record
	cooldowns map[Cooldown]Cooldown
	sessions  map[scopedName]Session
}

func newKept() *kept {
	return &kept{map[string]Record{}, map[Cooldown]Cooldown{}, map[scopedName]Session{}}
}

func (k *kept) PutLease(r Record)      { k.leases[r.ID] = r }
func (k *kept) DeleteLease(r Record)   { delete(k.leases, r.ID) }
func (k *kept) PutCooldown(c Cooldown) { k.cooldowns[Cooldown{c.ProxyUID, c.Target, time.Time{}}] = c }
func (k *kept) DeleteCooldown(c Cooldown) {
	delete(k.cooldowns, Cooldown{c.ProxyUID, c.Target, time.Time{}})
}
func (k *kept) PutSession(s Session)    { k.sessions[scopedName{s.Holder, s.Name}] = s }
func (k *kept) DeleteSession(s Session) { delete(k.sessions, scopedName{s.Holder, s.Name}) }

func (k *kept) state(fence uint64) State {
	return State{slices.Collect(maps.Values(k.leases)), slices.Collect(maps.Values(k.cooldowns)), slices.Collect(maps.Values(k.sessions)), fence}
}

// bare is the least around a ledger that makes it a lease.Store: a lock, a clock and a
// journal.
type bare struct {
	*Calls
	mu      sync.Mutex
	clock   *clocktesting.FakeClock
	ledger  *Ledger
	journal *kept
}

func newBare(clk *clocktesting.FakeClock) *bare {
	b := &bare{clock: clk, journal: newKept()}
	b.Calls = NewCalls(b.do)
	b.ledger = New(storetest.Window, FirstFence(clk.Now()), b.journal)
	b.ledger.SetLimits(storetest.Limits())
	return b
}

func (b *bare) do(ctx context.Context, _ bool, call func(g *Ledger, now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.NotifyChanged(b.ledger)
	return call(b.ledger, b.clock.Now())
}

func (b *bare) Offer(offers lease.Offers) {
	_ = b.do(context.Background(), false, func(g *Ledger, _ time.Time) error { g.Offer(offers); return nil })
	b.NotifyFreed()
}

func (b *bare) Ready() error { return nil }

// check wants the invariants to hold, and the journal to have the ledger's state. The
// journal has the whole record of an expired lease, the ledger only a part.
func (b *bare) check(t *testing.T) {
	t.Helper()
	require.NoError(t, b.ledger.Check())
	state, journal := b.ledger.State(), b.journal.state(b.ledger.Fence())
	ids := func(of []Record) (ids []string) {
		for _, r := range of {
			ids = append(ids, r.ID)
		}
		return ids
	}
	require.ElementsMatch(t, ids(state.Leases), ids(journal.Leases))
	require.ElementsMatch(t, state.Cooldowns, journal.Cooldowns)
	require.ElementsMatch(t, state.Sessions, journal.Sessions)
}

// TestLedgerConforms runs the tests of all stores, with their naive model and random
// histories, on the ledger. A restart resets a new ledger to what the journal has.
func TestLedgerConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T, clk *clocktesting.FakeClock) storetest.Subject {
		b := newBare(clk)
		t.Cleanup(func() { b.check(t) })
		reopen := func(t *testing.T) lease.Store {
			b.check(t)
			old := b
			b = newBare(clk)
			b.journal = old.journal
			b.ledger.journal = b.journal
			b.ledger.Reset(b.journal.state(old.ledger.Fence()))
			return b
		}
		return storetest.Subject{Store: b, Reopen: reopen}
	})
}

func TestFirstFence(t *testing.T) {
	assert.EqualValues(t, 1_000_001, FirstFence(time.Unix(1, 1_999)))
	assert.Zero(t, FirstFence(time.Unix(-1, 0)), "a clock before 1970")
	g := New(time.Minute, 7, nil)
	g.Offer(lease.Offers{Changed: []*lease.Offer{testOffer(1)}})
	l, err := g.Acquire(start, lease.Request{TTL: time.Minute})
	require.NoError(t, err)
	assert.EqualValues(t, 8, l.FencingToken)
	assert.EqualValues(t, 8, g.Fence())
}

func TestRevisionGrowsWithChangesAlone(t *testing.T) {
	g := New(time.Minute, 0, nil)
	before := g.Revision()
	changed := func() bool {
		defer func() { before = g.Revision() }()
		return g.Revision() > before
	}
	g.Offer(lease.Offers{Changed: []*lease.Offer{testOffer(1)}})
	assert.True(t, changed(), "a proxy")
	l, err := g.Acquire(start, lease.Request{TTL: time.Minute})
	require.NoError(t, err)
	assert.True(t, changed(), "a grant")
	_, err = g.Get(start, l.ID)
	require.NoError(t, err)
	g.Usage(start)
	g.List(start, lease.Query{Limit: 1})
	assert.False(t, changed(), "reads")
	_, err = g.Renew(start, l.ID, time.Second)
	require.NoError(t, err)
	assert.False(t, changed(), "a renewal that extends nothing")
	_, err = g.Renew(start, l.ID, time.Hour)
	require.NoError(t, err)
	assert.True(t, changed(), "a renewal")
	require.NoError(t, g.Report(start, l.ID, lease.Report{Result: lease.ResultOK}))
	assert.False(t, changed(), "a report without a cooldown")
	require.NoError(t, g.Report(start, l.ID, lease.Report{Result: lease.ResultBanned, Target: "a.example"}))
	assert.True(t, changed(), "a cooldown")
	g.Advance(start.Add(time.Minute))
	assert.True(t, changed(), "the end of a cooldown")
	g.Advance(l.GrantedAt.Add(time.Hour))
	assert.True(t, changed(), "an expiry")
	g.Advance(l.GrantedAt.Add(time.Hour + time.Minute))
	assert.True(t, changed(), "the last moment for a late report")
	assert.False(t, g.Release(start.Add(2*time.Hour), "no-such-lease"))
	assert.False(t, changed(), "a release of no lease")
}
