package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/memory"
)

func TestSharedListsAreMadeOnceForAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedPages
		var made atomic.Int64
		goOn := make(chan struct{})
		build := func() (*page, error) {
			n := made.Add(1)
			<-goOn
			return &page{tag: fmt.Sprint(n)}, nil
		}
		var wg sync.WaitGroup
		ask := func(key, want string) {
			wg.Go(func() {
				p, err := s.get(key, build)
				if assert.NoError(t, err) {
					assert.Equal(t, want, p.tag)
				}
			})
		}
		ask("a", "1")
		synctest.Wait()
		require.EqualValues(t, 1, made.Load())
		for range 99 { // too late for the one that is being made
			ask("a", "2")
		}
		synctest.Wait()
		require.EqualValues(t, 1, made.Load())
		close(goOn)
		wg.Wait()
		assert.EqualValues(t, 2, made.Load())
		ask("b", "3")
		wg.Wait()
		ask("a", "4") // nothing is kept
		wg.Wait()
	})
}

func TestSharedListsShareErrorsAndSurvivePanics(t *testing.T) {
	var s sharedPages
	broken := errors.New("broken")
	_, err := s.get("a", func() (*page, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	assert.Panics(t, func() { _, _ = s.get("a", func() (*page, error) { panic("oh") }) })
	p, err := s.get("a", func() (*page, error) { return &page{}, nil })
	require.NoError(t, err)
	assert.NotNil(t, p)
}

func TestKeysOfLists(t *testing.T) {
	yes, no := true, false
	seen := map[string]bool{}
	for _, q := range []listQuery{
		{}, {healthy: &yes}, {healthy: &no}, {leasable: &yes}, {leasable: &no}, {phase: "Ready"}, {namespace: "Ready"}, {limit: 1}, {after: "a/b"},
		{selector: map[string]string{"a": "b"}}, {selector: map[string]string{"a": "b c:d"}}, {selector: map[string]string{"a": "b", "c": "d"}},
	} {
		assert.False(t, seen[q.key()], q.key())
		seen[q.key()] = true
	}
	assert.Equal(t, listQuery{wait: time.Second}.key(), listQuery{}.key())
}

// Those who wait look at the same moments, so that one of them looks for all.
func TestWaitersLookAtTheSameMoments(t *testing.T) {
	for _, ms := range []int{0, 1, 249, 250, 251, 999} {
		now := testStart.Add(time.Duration(ms) * time.Millisecond)
		next := nextPoll(now)
		assert.Zero(t, next.UnixNano()%int64(listPause))
		assert.True(t, next.After(now) && next.Sub(now) <= listPause, "%s", next.Sub(now))
	}
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	tag := a.get("/v1/proxies").header.Get("Etag")
	var waiters []<-chan answer
	for range 20 {
		waiters = append(waiters, a.waitForList(tag))
	}
	a.fleet.set(aProxy("a"), aProxy("b"))
	for _, done := range waiters {
		res := answerWhile(a, done, listPause)
		assert.Equal(t, http.StatusOK, res.status)
		assert.Contains(t, res.body, `"name":"b"`)
	}
}

// busyFleet is one in which some proxies change.
type busyFleet struct {
	mu   sync.Mutex
	snap fleet.Snapshot
}

func (f *busyFleet) Changed() <-chan struct{} { return nil }

func (f *busyFleet) Snapshot() (fleet.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snap, nil
}

// change makes every nth proxy another one.
func (f *busyFleet) change(first, nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := append([]*fleet.Proxy(nil), f.snap.Proxies...)
	for i := first % nth; i < len(list); i += nth {
		p := *list[i]
		p.LatencyMillis++
		list[i] = &p
	}
	f.snap.Proxies = list
}

// BenchmarkWaiters has 200 clients wait for changes of the list of 10,000 proxies, of
// which 1 % change in a second: what they cost at one of the four moments of a second
// at which they look, and how many times that is when each makes its own list.
func BenchmarkWaiters(b *testing.B) {
	const proxies, waiters, looks = 10_000, 200, int(time.Second / listPause)
	f := &busyFleet{snap: fleet.Snapshot{Freshness: fleet.NewFreshness([]fleet.Renewal{{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: testStart}}, testStart, time.Minute)}}
	for i := range proxies {
		f.snap.Proxies = append(f.snap.Proxies, aProxy(fmt.Sprintf("p-%05d", i), withAttr("group", fmt.Sprint(i%50)), withMaxLeases(5)))
	}
	store := memory.New(clock.RealClock{}, time.Minute)
	s, err := New(Config{
		Fleet: f, Store: store, Insecure: true, MaxLeaseTTL: time.Hour,
		Clock: clock.RealClock{}, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), Credentials: &fakeSecrets{},
	})
	require.NoError(b, err)
	_, err = s.offers.sync()
	require.NoError(b, err)
	for range proxies {
		_, err := store.Acquire(b.Context(), lease.Request{TTL: time.Hour})
		require.NoError(b, err)
	}
	look := func(i int, page func(context.Context, listQuery) (*page, error)) time.Duration {
		f.change(i, 100*looks)
		began := time.Now()
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				p, err := page(b.Context(), listQuery{})
				if err != nil || len(p.json()) < proxies {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	var together, alone time.Duration
	n := 0
	for b.Loop() {
		together += look(2*n, s.page)
		alone += look(2*n+1, s.makePage)
		n++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(together.Microseconds())/1000/float64(n), "ms/look")
	b.ReportMetric(float64(alone.Microseconds())/1000/float64(n), "ms/look-each-alone")
	b.ReportMetric(float64(alone)/float64(together), "alone:together")
}
