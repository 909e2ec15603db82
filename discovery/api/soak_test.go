//go:build soak

package api

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/journal"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/memory"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/soaktest"
)

var soakLeases = flag.Int("leases", 1_000_000, "leases that each store grants in a soak")

const (
	soakClients     = 64
	soakConnections = 8 // of all clients
	soakSamples     = 40
	soakWindow      = 2 * time.Second // of cooldowns
	soakTTL         = 2 * time.Second // of the leases without a release
	soakEntries     = 2000            // that come and go in one part of Redis, at the pace of the moment
)

// soaked is a store under test with its background work.
type soaked struct {
	lease.Store
	run  func(context.Context) error
	kept func() ([]soaktest.Figure, error) // what it keeps; nil for nothing
}

// TestSoak has each store grant a million leases, one in twenty over HTTP. A third is renewed, a third is reported on, a tenth is never released.
// Memory, goroutines, files, series and what the store keeps must stay flat.
func TestSoak(t *testing.T) {
	for name, open := range map[string]func(*testing.T) soaked{"memory": soakMemory, "file": soakFile, "redis": soakRedis} {
		t.Run(name, func(t *testing.T) { soakStore(t, open(t)) })
	}
}

func soakMemory(*testing.T) soaked {
	s := memory.New(clock.RealClock{}, soakWindow)
	return soaked{Store: s, run: s.Run}
}

func soakFile(t *testing.T) soaked {
	path := filepath.Join(t.TempDir(), "leases")
	s, err := journal.Open(journal.Config{Path: path, Cooldown: soakWindow, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return soaked{Store: s, run: s.Run, kept: func() ([]soaktest.Figure, error) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		return []soaktest.Figure{storeSize(float64(info.Size()))}, nil
	}}
}

func soakRedis(t *testing.T) soaked {
	server := redistest.Start(t, "appendonly yes", "appendfsync everysec")
	options, prefix, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	s := redis.Open(redis.Config{Options: options, Prefix: prefix, Cooldown: soakWindow, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	client := server.Client()
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return soaked{Store: s, run: s.Run, kept: func() ([]soaktest.Figure, error) { return inRedis(client, prefix) }}
}

func storeSize(bytes float64) soaktest.Figure {
	return soaktest.Figure{Name: "store_MB", Value: bytes / 1e6, Slack: 1}
}

// inRedis is what a Redis takes, and how many entries each part of the store has there:
// what grows slowly hides among buffers and what else its memory goes to.
func inRedis(client *goredis.Client, prefix string) ([]soaktest.Figure, error) {
	stats, err := client.InfoMap(context.Background(), "memory").Result()
	if err != nil {
		return nil, err
	}
	var bytes float64
	if _, err := fmt.Sscan(stats["Memory"]["used_memory"], &bytes); err != nil {
		return nil, err
	}
	parts, err := redistest.Census(context.Background(), client, prefix)
	if err != nil {
		return nil, err
	}
	figures := []soaktest.Figure{storeSize(bytes)}
	for _, name := range redistest.Parts() {
		figures = append(figures, soaktest.Figure{Name: name, Value: float64(parts[name]), Slack: soakEntries})
	}
	return figures, nil
}

// soak is one store with its clients.
type soak struct {
	store  lease.Store
	url    string
	client *http.Client
	tries  atomic.Int64
	left   atomic.Int64 // leases to be granted yet
	over   atomic.Int64 // of those granted, over HTTP
	pause  sync.RWMutex // held for writing while figures are taken
}

func soakStore(t *testing.T, s soaked) {
	ctx, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { assert.NoError(t, s.run(ctx)) })
	defer background.Wait()
	defer stop()
	reg := prometheus.NewRegistry()
	k := &soak{store: s, url: soakServer(t, s, reg), client: &http.Client{Transport: &http.Transport{MaxConnsPerHost: soakConnections, MaxIdleConnsPerHost: soakConnections}}}
	defer k.client.CloseIdleConnections()
	k.left.Store(int64(*soakLeases))
	began := time.Now()
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range soakClients {
		clients.Go(func() { k.work(ctx, t) })
	}
	go func() { clients.Wait(); close(done) }()
	course := soaktest.Course{Out: os.Stdout}
	for next := *soakLeases / soakSamples; ; {
		select {
		case <-done:
		case <-time.After(20 * time.Millisecond):
		}
		granted := *soakLeases - int(k.left.Load())
		if granted >= next {
			k.note(t, &course, granted, s, reg)
			next = granted + *soakLeases/soakSamples
		}
		if granted >= *soakLeases || t.Failed() {
			break
		}
	}
	<-done
	took := time.Since(began)
	t.Logf("%d leases, %d of them over HTTP, in %s: %.0f/s", *soakLeases, k.over.Load(), took.Round(time.Second), float64(*soakLeases)/took.Seconds())
	assert.NoError(t, course.Flat())
	require.Eventually(t, func() bool { u, err := s.Usage(ctx); return err == nil && u.Total() == 0 }, 4*soakTTL, 100*time.Millisecond, "all leases end")
}

// soakServer serves the store's proxies: more than clients can lease at once.
func soakServer(t *testing.T, s soaked, reg *prometheus.Registry) string {
	snap := fleet.Snapshot{Freshness: fleet.NewFreshness([]fleet.Renewal{{Shard: v1alpha1.Shard{Count: 1}, At: testStart}}, testStart, time.Minute)}
	for i := range 200 {
		snap.Proxies = append(snap.Proxies, aProxy(fmt.Sprintf("p-%03d", i), withMaxLeases(200)))
	}
	server, err := New(Config{
		Fleet: stillFleet{snap}, Store: s, Insecure: true, MaxLeaseTTL: time.Hour, Credentials: &fakeSecrets{},
		Clock: clock.RealClock{}, Metrics: NewMetrics(reg), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	reg.MustRegister(NewCollector(stillFleet{snap}, s, slog.New(slog.DiscardHandler)))
	_, err = server.offers.sync()
	require.NoError(t, err)
	h := httptest.NewServer(server.Handler())
	t.Cleanup(h.Close)
	return h.URL
}

// note takes all figures while the clients hold still.
func (k *soak) note(t *testing.T, course *soaktest.Course, granted int, s soaked, reg *prometheus.Registry) {
	k.pause.Lock()
	defer k.pause.Unlock()
	figures, err := soaktest.Own(reg)
	require.NoError(t, err)
	if s.kept != nil {
		kept, err := s.kept()
		require.NoError(t, err)
		figures = append(figures, kept...)
	}
	course.Note(granted, figures...)
}

func (k *soak) work(ctx context.Context, t *testing.T) {
	for k.left.Load() > 0 && !t.Failed() {
		k.pause.RLock()
		n := int(k.tries.Add(1))
		lives := k.overStore
		if n%20 == 0 {
			lives = k.overHTTP
		}
		granted, err := lives(ctx, n)
		k.pause.RUnlock()
		switch {
		case err != nil:
			t.Errorf("lease %d: %v", n, err)
		case granted:
			k.left.Add(-1)
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

func results(n int) lease.Result {
	return []lease.Result{lease.ResultOK, lease.ResultRateLimited, lease.ResultOK, lease.ResultBanned, lease.ResultProxyTimeout}[n%5]
}

// overStore is the life of one lease.
func (k *soak) overStore(ctx context.Context, n int) (granted bool, err error) {
	left := n%10 == 7
	ask := lease.Request{TTL: time.Minute, Holder: "h", Target: fmt.Sprintf("t%d.example", n%50)}
	if left {
		ask.TTL = soakTTL
	}
	if n%4 == 1 {
		ask.Session = fmt.Sprintf("s-%d", n%3000)
	}
	if n%8 == 3 {
		ask.Key, ask.Fingerprint = fmt.Sprintf("k-%d", n), "f"
	}
	l, err := k.store.Acquire(ctx, ask)
	var none *lease.NoMatchError
	if errors.As(err, &none) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if left {
		return true, nil
	}
	if n%3 == 0 {
		if _, err := k.store.Renew(ctx, l.ID, time.Minute); err != nil {
			return true, err
		}
	}
	if n%3 == 1 {
		if err := k.store.Report(ctx, l.ID, lease.Report{Result: results(n / 3)}); err != nil {
			return true, err
		}
	}
	return true, k.store.Release(ctx, l.ID)
}

// overHTTP is the same as crawlers do it.
func (k *soak) overHTTP(ctx context.Context, n int) (granted bool, err error) {
	code, path, err := k.ask(ctx, http.MethodPost, "/v1/leases", fmt.Sprintf(`{"ttlSeconds":60,"target":"t%d.example","session":"h-%d"}`, n%50, n%3000), fmt.Sprint("k-", n))
	if err != nil || code == http.StatusConflict {
		return false, err
	}
	if code != http.StatusCreated {
		return false, fmt.Errorf("acquire: %d", code)
	}
	k.over.Add(1)
	for _, step := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPost, path + "/renew", `{"ttlSeconds":60}`, http.StatusOK},
		{http.MethodPost, path + "/report", fmt.Sprintf(`{"result":%q}`, results(n)), http.StatusNoContent},
		{http.MethodGet, path, "", http.StatusOK},
		{http.MethodDelete, path, "", http.StatusNoContent},
	} {
		if code, _, err := k.ask(ctx, step.method, step.path, step.body, ""); err != nil || code != step.want {
			return true, fmt.Errorf("%s %s: %d, %w", step.method, step.path, code, err)
		}
	}
	return true, nil
}

func (k *soak) ask(ctx context.Context, method, path, body, key string) (code int, location string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, k.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := k.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location"), nil
}
