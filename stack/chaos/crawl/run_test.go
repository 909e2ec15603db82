package crawl

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/connectproxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/target"
)

// crawled is the world that crawlers of the tests live in.
type crawled struct {
	cfg  Config
	path string
}

func newCrawled(t *testing.T) *crawled {
	t.Helper()
	site, err := target.New("127.0.0.1", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { assert.NoError(t, site.Run(ctx)) })
	all.Go(func() {
		open := func(ctx context.Context, r connectproxy.Request) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", r.Target)
		}
		assert.NoError(t, (&connectproxy.Proxy{Open: open}).Serve(ctx, proxy))
	})
	t.Cleanup(func() { cancel(); all.Wait() })

	c := &crawled{path: filepath.Join(t.TempDir(), "history.jsonl")}
	recorder, err := history.Start(c.path, clock.RealClock{}, history.Begin{Seed: 1})
	require.NoError(t, err)
	c.cfg = Config{
		Recorder: recorder, Domain: "file", Token: "secret", Crawlers: 12, Rate: 150, Seed: 1,
		Replicas: []Replica{
			{Name: "one", URL: startAPI(t, proxy.Addr().String()).URL},
			{Name: "gone", URL: "http://127.0.0.1:1"},
		},
		TargetURL: site.URL, TargetCA: site.Pool(), second: second,
	}
	return c
}

// history once enough returns true.
func (c *crawled) until(t *testing.T, enough func(*history.History) bool) *history.History {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c.cfg) }()
	var h *history.History
	assert.Eventually(t, func() bool {
		var err error
		h, err = history.Open(c.path)
		return err == nil && enough(h)
	}, time.Minute, 200*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, c.cfg.Recorder.Close())
	return h
}

// TestRun has all crawlers crawl, in whatever manner, until ctx ends.
func TestRun(t *testing.T) {
	newCrawled(t).until(t, func(h *history.History) bool {
		done := map[string]bool{}
		for _, c := range h.Calls {
			done[fmt.Sprint(c.Replica, c.Status/100)] = true
			done[c.Crawler] = true
		}
		return done["one2"] && done["one4"] && done["one5"] && done["gone0"] && done["file-00"] && done["file-11"]
	})
}

// TestManners: what each kind of crawler meets sooner or later.
func TestManners(t *testing.T) {
	is := func(kind history.CallKind, status int) func(h *history.History) bool {
		return func(h *history.History) bool {
			return slices.ContainsFunc(h.Calls, func(c history.Call) bool { return c.Kind == kind && c.Status == status })
		}
	}
	call := func(f func(c *history.Call) bool) func(h *history.History) bool {
		return func(h *history.History) bool {
			return slices.ContainsFunc(h.Calls, func(c history.Call) bool { return f(&c) })
		}
	}
	for name, tt := range map[string]struct {
		manner func(c *crawler, ctx context.Context)
		meets  []func(h *history.History) bool
	}{
		"polite": {(*crawler).polite, []func(h *history.History) bool{
			is(history.Release, 204), is(history.Report, 204), is(history.Acquire, 409),
			func(h *history.History) bool {
				return slices.ContainsFunc(h.Crawls, func(c history.Crawl) bool { return c.OK })
			},
		}},
		"in session": {(*crawler).inSession, []func(h *history.History) bool{
			call(func(c *history.Call) bool { return strings.HasPrefix(c.Session, "file-") && c.Status == 201 }),
		}},
		"with a key": {(*crawler).withKey, []func(h *history.History) bool{func(h *history.History) bool {
			seen := map[string]bool{}
			return slices.ContainsFunc(h.Calls, func(c history.Call) bool {
				again := c.Key != "" && seen[c.LeaseID]
				seen[c.LeaseID] = c.LeaseID != "" && c.Kind == history.Acquire
				return again && seen[c.LeaseID]
			})
		}}},
		"late": {(*crawler).late, []func(h *history.History) bool{
			call(func(c *history.Call) bool { return c.Reason == "expired" }),
			is(history.Get, 200), // of the lease that came after
		}},
		"impatient": {(*crawler).impatient, []func(h *history.History) bool{is(history.Release, 204)}},
		"vanishing": {(*crawler).vanish, []func(h *history.History) bool{is(history.Acquire, 201)}},
		"odd answers and none": {(*crawler).polite, []func(h *history.History) bool{
			call(func(c *history.Call) bool { return c.Failure == history.Odd }),
			call(func(c *history.Call) bool { return c.Failure == history.Broken && c.Uncertain() }),
			call(func(c *history.Call) bool { return c.Status == 503 && c.RetryAfter == "1" }),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCrawled(t)
			c, done := w.one()
			defer done()
			met := func() bool {
				h, err := history.Open(w.path)
				require.NoError(t, err)
				return len(h.Calls) > 0 && !slices.ContainsFunc(tt.meets, func(met func(*history.History) bool) bool { return !met(h) })
			}
			for rounds := 0; rounds < 200 && !met(); rounds++ {
				tt.manner(c, t.Context())
			}
			assert.True(t, met())
			require.NoError(t, w.cfg.Recorder.Close())
		})
	}
}

// one is a single crawler, who knows the replica that is there alone.
func (c *crawled) one() (who *crawler, done func()) {
	c.cfg.Replicas = c.cfg.Replicas[:1]
	transport := &http.Transport{}
	return &crawler{
		cfg: &c.cfg, name: "c", pace: rate.NewLimiter(rate.Inf, 1), http: transport, used: &recent{}, random: rand.New(rand.NewPCG(1, 1)),
	}, transport.CloseIdleConnections
}

// TestCallsOfOneLease are made one after another, each until it is answered.
func TestCallsOfOneLease(t *testing.T) {
	w := newCrawled(t)
	w.cfg.second = time.Second // so that the lease lasts
	c, done := w.one()
	defer done()
	var l *held
	until := func(status int, call func() history.Call) history.Call {
		var rec history.Call
		for range 5 {
			if rec = call(); rec.Status == status {
				break
			}
		}
		require.Equal(t, status, rec.Status, "%+v", rec)
		return rec
	}
	at := w.cfg.Replicas[0]
	until(201, func() (rec history.Call) {
		l, rec = c.acquire(t.Context(), at, want{ttl: time.Hour, target: "site.example", exclude: []string{"default/b"}})
		return rec
	})
	assert.Equal(t, []string{"default/a"}, c.used.list())
	ends := until(200, func() history.Call { return c.renew(t.Context(), at, l) }).ExpiresAt
	assert.Equal(t, ends, l.expiresAt)
	assert.Equal(t, ends, until(200, func() history.Call { return c.get(t.Context(), at, l) }).ExpiresAt)
	until(204, func() history.Call { return c.report(t.Context(), at, l, "banned") })
	until(204, func() history.Call { return c.release(t.Context(), at, l) })
	until(404, func() history.Call { return c.get(t.Context(), at, l) })
	require.NoError(t, w.cfg.Recorder.Close())
}

// TestRecordsSayWhatWasAnswered is about the fields that the judge reads.
func TestRecordsSayWhatWasAnswered(t *testing.T) {
	h := newCrawled(t).until(t, func(h *history.History) bool { return len(h.Calls) > 100 })
	tokens := map[uint64]string{}
	for _, c := range h.Calls {
		require.Positive(t, c.Asked)
		require.GreaterOrEqual(t, c.Answered, c.Asked)
		require.Equal(t, c.Asked, c.At)
		require.Equal(t, c.Status == 0, c.Failure != "", "%+v", c)
		if c.Kind != history.Acquire || c.Status != 201 {
			continue
		}
		require.Equal(t, "default/a", c.Proxy)
		require.NotEmpty(t, c.Endpoint)
		require.NotEmpty(t, c.LeaseID)
		require.InDelta(t, c.Asked, c.ExpiresAt, float64(time.Minute), "an offset, and not a wall time: %+v", c)
		tokens[c.FencingToken] = c.LeaseID
	}
	assert.NotEmpty(t, tokens)
	for _, c := range h.Crawls {
		require.True(t, c.OK, "%+v", c)
	}
}

func TestConfig(t *testing.T) {
	assert.Error(t, Run(t.Context(), Config{}))
	c := newCrawled(t)
	c.cfg.Crawlers = 0
	assert.ErrorContains(t, Run(t.Context(), c.cfg), "0 crawlers")
	require.NoError(t, c.cfg.Recorder.Close())
}

func TestFailures(t *testing.T) {
	assert.Equal(t, history.Timeout, failureOf(context.DeadlineExceeded))
	assert.Equal(t, history.Broken, failureOf(context.Canceled))
	assert.Equal(t, history.Odd, failureOf(fmt.Errorf("%w: x", errOdd)))
}

func TestRecent(t *testing.T) {
	var r recent
	for i := range mostExcluded + 2 {
		r.add(fmt.Sprint(i))
	}
	r.add("5")
	names := r.list()
	assert.Len(t, names, mostExcluded)
	assert.Equal(t, []string{"2", "5"}, []string{names[0], names[mostExcluded-1]})
}
