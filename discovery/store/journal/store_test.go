package journal

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		os.Exit(child(path))
	}
	goleak.VerifyTestMain(m)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func testConfig(path string, clk *clocktesting.FakeClock) Config {
	return Config{Path: path, Cooldown: storetest.Window, Clock: clk, Log: quiet(), noSync: true}
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close()) // the committer sweeps the ledger until then
		require.NoError(t, s.ledger.Check())
	})
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T, clk *clocktesting.FakeClock) storetest.Subject {
		cfg := testConfig(filepath.Join(t.TempDir(), "leases"), clk)
		cfg.Limits = storetest.Limits()
		s := open(t, cfg)
		reopen := func(t *testing.T) lease.Store {
			crash(t, s)
			// The outage is none: it has tests of its own.
			f, err := openFile(cfg.Path, true)
			require.NoError(t, err)
			require.NoError(t, f.commit(newBatch(s.line), storedMeta{Alive: clk.Now().UnixNano(), Fence: s.ledger.Fence()}))
			require.NoError(t, f.close())
			s = open(t, cfg)
			return s
		}
		return storetest.Subject{Store: s, Reopen: reopen}
	})
}

// crash ends a store without a commit of changes that no call waits for.
func crash(t *testing.T, s *Store) {
	t.Helper()
	s.mu.Lock()
	s.pending.batch = newBatch(s.line)
	s.mu.Unlock()
	require.NoError(t, s.Close())
}

func offer(s *Store, n, maxLeases int) {
	s.Offer(lease.Offers{Changed: offers(n, maxLeases)})
}

func offers(n, maxLeases int) []*lease.Offer {
	out := make([]*lease.Offer, n)
	for i := range out {
		name := string(rune('a' + i))
		out[i] = &lease.Offer{Leasable: true, Candidate: lease.Candidate{
			Instance: lease.Instance{ProxyUID: "uid-" + name, ID: "instance-" + name}, Proxy: "crawl/" + name, MaxLeases: maxLeases, LatencyMillis: 20,
		}}
	}
	return out
}

func newClock() *clocktesting.FakeClock {
	return clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
}

// beat steps the clock until the store has committed the time.
func beat(t *testing.T, s *Store, clk *clocktesting.FakeClock, step time.Duration) {
	t.Helper()
	clk.Step(step)
	want := clk.Now()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		var alive time.Time
		_ = s.file.db.View(func(tx *bolt.Tx) error {
			if m, err := readMeta(tx); err == nil && m != nil {
				alive = time.Unix(0, m.Alive)
			}
			return nil
		})
		return alive.Equal(want)
	}, 10*time.Second, time.Millisecond)
}

func TestOutageExtendsAllDeadlines(t *testing.T) {
	clk := newClock()
	cfg := testConfig(filepath.Join(t.TempDir(), "leases"), clk)
	s := open(t, cfg)
	offer(s, 3, 1)
	ask := lease.Request{TTL: time.Minute, Target: "example.com", Holder: "x\xff", Session: "s\xfe"}
	short, err := s.Acquire(t.Context(), lease.Request{TTL: 10 * time.Second})
	require.NoError(t, err)
	long, err := s.Acquire(t.Context(), ask)
	require.NoError(t, err)
	require.NoError(t, s.Report(t.Context(), long.ID, lease.Report{Result: lease.ResultBanned}))
	cooledUntil := clk.Now().Add(storetest.Window)
	beat(t, s, clk, 20*time.Second) // the short one ends while the store is alive
	crash(t, s)

	const outage = 3 * time.Hour
	clk.Step(outage)
	s = open(t, cfg)
	offer(s, 3, 1)
	got, err := s.Get(t.Context(), long.ID)
	require.NoError(t, err)
	assert.True(t, long.ExpiresAt.Add(outage).Equal(got.ExpiresAt), "%s", got.ExpiresAt)
	_, err = s.Get(t.Context(), short.ID)
	assert.ErrorIs(t, err, lease.ErrUnknown, "what had ended does not come back")

	clk.SetTime(cooledUntil.Add(outage - time.Nanosecond))
	_, err = s.Acquire(t.Context(), lease.Request{TTL: time.Second, Target: "example.com", Exclude: []string{"crawl/a", "crawl/c"}})
	var none *lease.NoMatchError
	require.ErrorAs(t, err, &none)
	assert.Equal(t, 1, none.InCooldown)
	clk.Step(time.Nanosecond)
	again, err := s.Acquire(t.Context(), ask)
	require.NoError(t, err)
	assert.Equal(t, long.Proxy, again.Proxy, "the session was kept")

	crash(t, s)
	s = open(t, cfg)
	got, err = s.Get(t.Context(), again.ID)
	require.NoError(t, err)
	assert.True(t, again.ExpiresAt.Equal(got.ExpiresAt), "an outage counts once")
}

func TestSecondProcessIsRefused(t *testing.T) {
	cfg := testConfig(filepath.Join(t.TempDir(), "leases"), newClock())
	open(t, cfg)
	_, err := Open(cfg)
	assert.ErrorContains(t, err, cfg.Path+" is in use by another process; only one may have it, so run one replica")
}

func TestClosedStoreIsUnavailable(t *testing.T) {
	s := open(t, testConfig(filepath.Join(t.TempDir(), "leases"), newClock()))
	require.NoError(t, s.Ready())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err := s.Acquire(t.Context(), lease.Request{TTL: time.Second})
	assert.ErrorIs(t, err, lease.ErrUnavailable)
	assert.ErrorIs(t, s.Ready(), lease.ErrUnavailable)
	s.Offer(lease.Offers{})
}

func TestCanceledAcquireReleasesItsLease(t *testing.T) {
	clk := newClock()
	s := open(t, testConfig(filepath.Join(t.TempDir(), "leases"), clk))
	offer(s, 1, 1)
	release := holdDisk(s)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, lease.Request{TTL: time.Hour})
		errs <- err
	}()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pending.values) > 0 || s.current != nil
	}, 10*time.Second, time.Millisecond)
	cancel()
	assert.ErrorIs(t, <-errs, context.Canceled)
	release()
	l, err := s.Acquire(t.Context(), lease.Request{TTL: time.Hour})
	require.NoError(t, err, "the place is free")
	assert.NotEmpty(t, l.ID)
}

// The client may have retried with the same key meanwhile.
func TestCanceledAcquireWithAKeyKeepsItsLease(t *testing.T) {
	s := open(t, testConfig(filepath.Join(t.TempDir(), "leases"), newClock()))
	offer(s, 1, 1)
	release := holdDisk(s)
	ctx, cancel := context.WithCancel(t.Context())
	req := lease.Request{TTL: time.Hour, Key: "key"}
	first := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, req)
		first <- err
	}()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pending.values) > 0 || s.current != nil
	}, 10*time.Second, time.Millisecond)
	var second lease.Lease
	_, err := s.locked(func(g *ledger.Ledger, now time.Time) (err error) { second, err = g.Acquire(now, req); return err }) // and waits, too
	require.NoError(t, err)
	require.True(t, second.Replayed)
	cancel()
	assert.ErrorIs(t, <-first, context.Canceled)
	release()
	_, err = s.Get(t.Context(), second.ID)
	require.NoError(t, err)
}

// holdDisk has commits wait until the returned function is called.
func holdDisk(s *Store) func() {
	tx, err := s.file.db.Begin(true) // bbolt lets one writer in at a time
	if err != nil {
		panic(err)
	}
	return func() { _ = tx.Rollback() }
}

func TestCallsReturnAfterTheirCommit(t *testing.T) {
	s := open(t, testConfig(filepath.Join(t.TempDir(), "leases"), newClock()))
	offer(s, 1, 9)
	first, err := s.Acquire(t.Context(), lease.Request{TTL: time.Hour, Key: "k"})
	require.NoError(t, err)
	release := holdDisk(s)
	calls := map[string]func() error{
		"acquire": func() error { _, err := s.Acquire(t.Context(), lease.Request{TTL: time.Hour}); return err },
		"renew":   func() error { _, err := s.Renew(t.Context(), first.ID, 2*time.Hour); return err },
		"report": func() error {
			return s.Report(t.Context(), first.ID, lease.Report{Result: lease.ResultBanned, Target: "x"})
		},
		"replay":  func() error { _, err := s.Acquire(t.Context(), lease.Request{TTL: time.Hour, Key: "k"}); return err },
		"release": func() error { return s.Release(t.Context(), "unknown, and yet what is on the way may be it") },
	}
	var answered atomic.Int64
	errs := make(chan error, len(calls))
	for _, name := range []string{"acquire", "renew", "report", "replay", "release"} {
		go func() {
			err := calls[name]()
			answered.Add(1)
			errs <- err
		}()
		if name == "acquire" {
			require.Eventually(t, func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.current != nil
			}, 10*time.Second, time.Millisecond)
		}
	}
	_, err = s.Usage(t.Context()) // reading waits for nothing
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond) // a call that does not wait has its chance
	assert.Zero(t, answered.Load())
	release()
	for range calls {
		assert.NoError(t, <-errs)
	}
}
