package crawl

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/connectproxy"
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
	rules, err := connectproxy.Parse(strings.NewReader("http_port 1\nacl here src 127.0.0.0/8\nacl there dst 127.0.0.0/8\nhttp_access allow here there\n"))
	require.NoError(t, err)
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { assert.NoError(t, site.Run(ctx)) })
	all.Go(func() {
		assert.NoError(t, connectproxy.New(rules, slog.New(slog.DiscardHandler)).Serve(ctx, proxy))
	})
	t.Cleanup(func() { cancel(); all.Wait() })

	c := &crawled{path: filepath.Join(t.TempDir(), "history.jsonl")}
	recorder, err := history.Start(c.path, clock.RealClock{}, history.Begin{Seed: 1})
	require.NoError(t, err)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	c.cfg = Config{
		Recorder: recorder, Domain: "file", Token: "secret", Crawlers: 12, Rate: 300, Seed: 1,
		Replicas: []Replica{
			{Name: "one", URL: startAPI(t, proxy.Addr().String()).URL},
			{Name: "gone", URL: "http://" + gone.Addr().String()},
		},
		TargetURL: site.URL, TargetCA: site.Pool(), second: second,
	}
	return c
}

// history that has come together when enough says so.
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
	}, 30*time.Second, 50*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, c.cfg.Recorder.Close())
	return h
}

// TestCrawlersDoEverything that the API offers, meet with everything that can
// happen, and write down all of it.
func TestCrawlersDoEverything(t *testing.T) {
	kinds := []history.CallKind{history.Acquire, history.Renew, history.Get, history.Release, history.Report, history.List}
	failures := []history.Failure{history.Refused, history.Broken, history.Odd, history.Timeout}
	newCrawled(t).until(t, func(h *history.History) bool {
		done := map[any]bool{}
		for _, c := range h.Calls {
			done[c.Kind] = done[c.Kind] || (c.Status >= 200 && c.Status < 300)
			done[c.Failure] = true
			done[c.Status] = true
			done["replay"] = done["replay"] || c.Key != "" && c.Status == 201
			done["session"] = done["session"] || c.Session != "" && c.Status == 201
			done["told to wait"] = done["told to wait"] || c.RetryAfter != ""
			done["expired"] = done["expired"] || c.Reason == "expired"
		}
		for _, c := range h.Crawls {
			done["crawled"] = done["crawled"] || c.OK
		}
		for _, k := range kinds {
			if !done[k] {
				return false
			}
		}
		for _, f := range failures[:3] {
			if !done[f] {
				return false
			}
		}
		return done[409] && done[503] && done[404] && done["replay"] && done["session"] &&
			done["told to wait"] && done["expired"] && done["crawled"]
	})
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
	assert.Equal(t, history.Odd, failureOf(&oddError{assert.AnError}))
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
