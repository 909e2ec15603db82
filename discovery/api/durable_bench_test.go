package api

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/journal"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
)

// BenchmarkDurable is a durable acquire and release over HTTP with 64 clients,
// once for each store, on one disk and in turns: what the machine does besides
// meets all. The figures are pairs of acquire and release a second, and how many
// times those of Redis the file's are.
func BenchmarkDurable(b *testing.B) {
	const clients, rounds, turn = 64, 3, 2 * time.Second
	stores := []struct {
		name string
		open func(testing.TB) lease.Store
	}{
		{"file", openFile},
		{"redisAlways", openRedis("appendonly yes", "appendfsync always")},
		{"redisEverysec", openRedis("appendonly yes", "appendfsync everysec")},
	}
	rates := make([][]float64, len(stores))
	urls := make([]string, len(stores))
	for i, s := range stores {
		urls[i] = serveStore(b, s.open(b))
	}
	for b.Loop() {
		for range rounds {
			for i, url := range urls {
				rates[i] = append(rates[i], pairsPerSecond(b, url, clients, turn))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, s := range stores {
		slices.Sort(rates[i])
		b.ReportMetric(rates[i][len(rates[i])/2], s.name+"/s")
	}
	median := func(i int) float64 { return rates[i][len(rates[i])/2] }
	b.ReportMetric(median(0)/median(1), "file:redisAlways")
	b.ReportMetric(median(0)/median(2), "file:redisEverysec")
}

func openFile(tb testing.TB) lease.Store {
	s, err := journal.Open(journal.Config{
		Path: filepath.Join(tb.TempDir(), "leases"), Cooldown: time.Minute, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func openRedis(config ...string) func(testing.TB) lease.Store {
	return func(tb testing.TB) lease.Store {
		options, prefix, err := redis.ParseURL(redistest.Start(tb, config...).URL())
		require.NoError(tb, err)
		s := redis.Open(redis.Config{Options: options, Prefix: prefix, Cooldown: time.Minute, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
		tb.Cleanup(func() { require.NoError(tb, s.Close()) })
		return s
	}
}

// serveStore serves 200 proxies from the store.
func serveStore(tb testing.TB, store lease.Store) string {
	snap := fleet.Snapshot{Freshness: fleet.NewFreshness([]fleet.Renewal{{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: testStart}}, testStart, time.Minute)}
	for i := range 200 {
		snap.Proxies = append(snap.Proxies, aProxy(fmt.Sprintf("p-%03d", i)))
	}
	s, err := New(Config{
		Fleet: &stillFleet{snap}, Store: store, Insecure: true, MaxLeaseTTL: time.Hour,
		Clock: clock.RealClock{}, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), Credentials: &fakeSecrets{},
	})
	require.NoError(tb, err)
	server := httptest.NewServer(s.Handler())
	tb.Cleanup(server.Close)
	return server.URL
}

// pairsPerSecond has clients acquire and release for a while.
func pairsPerSecond(tb testing.TB, url string, clients int, during time.Duration) float64 {
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ask := func(method, path, body string) (int, string) {
		req, err := http.NewRequest(method, url+path, strings.NewReader(body))
		if err != nil {
			return 0, err.Error()
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header.Get("Location")
	}
	var pairs atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range clients {
		wg.Go(func() {
			for time.Since(began) < during {
				code, lease := ask(http.MethodPost, "/v1/leases", `{"ttlSeconds":60}`)
				if code != http.StatusCreated {
					tb.Errorf("acquire: %d %s", code, lease)
					return
				}
				if code, _ := ask(http.MethodDelete, lease, ""); code != http.StatusNoContent {
					tb.Errorf("release: %d", code)
					return
				}
				pairs.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(pairs.Load()) / time.Since(began).Seconds()
}
