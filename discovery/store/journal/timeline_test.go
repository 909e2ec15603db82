package journal

import (
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// steppedClock is a machine's clock: a monotonic clock, which its tickers follow too, and
// a wall clock that can be set.
type steppedClock struct {
	*clocktesting.FakeClock // tickers, and nothing else
	begin                   time.Time

	mu            sync.Mutex
	elapsed, wall time.Duration
}

func newSteppedClock() *steppedClock {
	begin := time.Now() // it has a monotonic reading, which nothing else can make
	return &steppedClock{FakeClock: clocktesting.NewFakeClock(begin), begin: begin}
}

var _ clock.WithTicker = (*steppedClock)(nil)

func (c *steppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return setWall(c.begin.Add(c.elapsed), c.wall)
}

func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// goOn advances both clocks.
func (c *steppedClock) goOn(d time.Duration) {
	c.mu.Lock()
	c.elapsed += d
	c.mu.Unlock()
	c.Step(d)
}

// set moves the wall clock alone.
func (c *steppedClock) set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
}

// setWall shifts the wall clock reading of a time by whole seconds, and leaves the
// monotonic one, as package time has it when the clock was set.
func setWall(t time.Time, d time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t))
	*wall += uint64(d/time.Second) << 30
	return t
}

func TestSetWallIsWhatSettingTheClockDoes(t *testing.T) {
	now := time.Now()
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		set := setWall(now, d)
		require.Zero(t, set.Sub(now), "the monotonic reading is the same")
		require.Equal(t, now.UnixNano()+int64(d), set.UnixNano())
	}
}

// Setting the wall clock, during a run or between two, changes no lease and no cooldown.
func TestLeasesRunForTheirTTLWhenTheWallClockIsSet(t *testing.T) {
	const ttl, step = 10 * time.Minute, 5 * time.Hour
	tests := map[string]struct {
		running, between time.Duration // by which the wall clock is set
		outage           time.Duration
	}{
		"not set":                        {},
		"forward while it runs":          {running: step},
		"back while it runs":             {running: -step},
		"forward between two runs":       {between: step},
		"back between two runs":          {between: -step},
		"forward, and back again":        {running: step, between: -step},
		"back, and forward again":        {running: -step, between: step},
		"back, and away for a while":     {between: -step, outage: time.Minute},
		"forward, and away for a while":  {running: step, outage: time.Minute},
		"away for longer than the lease": {outage: time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clk := newSteppedClock()
			cfg := testConfig(filepath.Join(t.TempDir(), "leases"), nil)
			cfg.Clock = clk
			s := open(t, cfg)
			offer(s, 1, 1)
			l, err := s.Acquire(t.Context(), lease.Request{TTL: ttl, Target: "x"})
			require.NoError(t, err)
			require.NoError(t, s.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned}))
			clk.goOn(time.Minute)
			clk.set(tt.running)
			_, err = s.Renew(t.Context(), l.ID, ttl-time.Minute) // as it is, but in the file at this moment
			require.NoError(t, err)
			require.NoError(t, s.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned, Target: "y"}))
			requireLeft(t, s, clk, l.ID, ttl-time.Minute)
			crash(t, s)

			clk.set(tt.between)
			clk.goOn(tt.outage)
			s = open(t, cfg)
			offer(s, 1, 1)
			requireLeft(t, s, clk, l.ID, ttl-time.Minute)
			clk.set(step)
			requireLeft(t, s, clk, l.ID, ttl-time.Minute)
			clk.set(-2 * step)
			requireLeft(t, s, clk, l.ID, ttl-time.Minute)
			clk.goOn(ttl - time.Minute - time.Nanosecond)
			requireLeft(t, s, clk, l.ID, time.Nanosecond)
			_, err = s.Acquire(t.Context(), lease.Request{TTL: ttl, Target: "x"})
			require.Error(t, err, "its place is taken, and its proxy cools")

			clk.goOn(time.Nanosecond)
			var ended *lease.EndedError
			_, err = s.Get(t.Context(), l.ID)
			require.ErrorAs(t, err, &ended)
			require.Equal(t, lease.EndExpired, ended.Reason)
			_, err = s.Acquire(t.Context(), lease.Request{TTL: ttl, Target: "x"})
			require.NoError(t, err, "the cooldown has ended too")
			require.NoError(t, s.Close())

			clk.set(-step)
			s = open(t, cfg)
			_, err = s.Get(t.Context(), l.ID)
			assert.ErrorAs(t, err, &ended, "what has ended stays ended")
		})
	}
}

// requireLeft wants a lease that runs for that long from now.
func requireLeft(t *testing.T, s *Store, clk *steppedClock, id string, want time.Duration) {
	t.Helper()
	l, err := s.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, want, l.ExpiresAt.Sub(clk.Now()))
}

func TestRecoveryWhileTheWallClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{3 * time.Hour, -3 * time.Hour} {
		clk := newSteppedClock()
		cfg := testConfig(filepath.Join(t.TempDir(), "leases"), nil)
		cfg.Clock = clk
		s := open(t, cfg)
		offer(s, 1, 1)
		l, err := s.Acquire(t.Context(), lease.Request{TTL: 10 * time.Minute})
		require.NoError(t, err)
		s.fail(errGone)
		clk.set(step)
		require.NoError(t, s.restore())
		requireLeft(t, s, clk, l.ID, 10*time.Minute)
	}
}
