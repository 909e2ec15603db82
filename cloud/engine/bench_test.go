package engine

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	zoneB = "europe-west1-b"
	zoneC = "europe-west1-c"
	zoneD = "europe-west1-d"
	zoneU = "us-central1-a"
)

// realistic timing of VMs.
func realistic() gcestandin.Timing {
	return gcestandin.Timing{
		Provisioning: 4 * time.Second, Staging: 6 * time.Second, Address: 2 * time.Second,
		Insert: 8 * time.Second, Delete: 25 * time.Second,
	}
}

// bench is an engine on a stand-in, on one clock that the test moves. Calls are
// made one after the other by the test itself: nothing happens behind its back.
type bench struct {
	t      *testing.T
	gce    *gcestandin.Server
	clock  *clocktesting.FakeClock
	cloud  *gcp.Cloud
	engine *Engine
	opts   Options
	made   *madeCount
	// story is what a crash test tells.
	story func(*px) bool

	mu sync.Mutex
	// alive are the VMs that exist, by id, with their UIDs.
	alive map[string]string
	// doubles are moments at which a UID had two VMs.
	doubles []string
}

type madeCount struct {
	mu     sync.Mutex
	counts map[string]int
}

func (m *madeCount) Made(_, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[reason]++
}

type benchConfig struct {
	timing gcestandin.Timing
	images []string
	gcp    gcp.Config
	wrap   func(provider.Cloud) provider.Cloud
	change func(*Options)
}

func newBench(t *testing.T, cfg benchConfig) *bench {
	t.Helper()
	b := &bench{t: t, made: &madeCount{counts: map[string]int{}}, alive: map[string]string{}}
	b.clock = clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	b.gce = gcestandin.New(gcestandin.Options{Timing: cfg.timing, Images: cfg.images, Clock: b.clock, OnChange: b.watch})
	srv := httptest.NewServer(b.gce.Handler())
	t.Cleanup(srv.Close)
	cfg.gcp.Project = "demo"
	var err error
	b.cloud, err = gcp.New(context.Background(), cfg.gcp, "inst", gcp.Options{Endpoint: srv.URL, Timeout: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.cloud.Close()) })
	var cloud provider.Cloud = b.cloud
	if cfg.wrap != nil {
		cloud = cfg.wrap(cloud)
	}
	b.opts = Options{
		Installation: "inst",
		Providers:    []provider.Named{{Name: "gcp-eu", Type: "gcp", Cloud: cloud}},
		Bucket:       provider.NewBucket(1000, 1000),
		ListInterval: 10 * time.Second, QuotaRetry: 5 * time.Minute, IntentTTL: 15 * time.Minute,
		CallTimeout: time.Minute, Concurrency: 8,
		Clock: b.clock, Metrics: b.made, Log: slog.New(slog.DiscardHandler),
	}
	if cfg.change != nil {
		cfg.change(&b.opts)
	}
	b.restart()
	t.Cleanup(func() { require.Empty(t, b.doubles, "a UID had two VMs") })
	return b
}

// watch is told about every change of the stand-in.
func (b *bench) watch(c gcestandin.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch c.Kind {
	case "inserted":
		b.alive[c.VM.ID] = c.VM.Labels[gcp.LabelUID]
	case "removed":
		delete(b.alive, c.VM.ID)
	}
	uid, n := c.VM.Labels[gcp.LabelUID], 0
	for _, other := range b.alive {
		if other == uid && uid != "" {
			n++
		}
	}
	if c.Kind == "inserted" && n > 1 {
		b.doubles = append(b.doubles, fmt.Sprintf("%s in %s at %s", uid, c.VM.Zone, b.clock.Now()))
	}
}

// restart drops the engine with all it knows and begins anew, as a killed
// process does.
func (b *bench) restart() { b.engine = New(b.opts) }

// drive makes every call that is due now.
func (b *bench) drive() {
	b.t.Helper()
	for range 10_000 {
		busy := false
		for _, a := range b.engine.accounts {
			jobs, next := a.step()
			if len(jobs) == 0 && !next.IsZero() {
				require.True(b.t, next.After(b.clock.Now()), "a loop without sleep")
			}
			for _, j := range jobs {
				busy = true
				a.do(context.Background(), j)
			}
		}
		if !busy {
			return
		}
	}
	b.t.Fatal("the engine makes calls without end and without time passing")
}

// pass lets time go by in steps of a second, making the calls that come due.
func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	b.drive()
	for range d / time.Second {
		b.clock.Step(time.Second)
		b.drive()
	}
}

// until lets time go by until cond holds.
func (b *bench) until(limit time.Duration, what string, cond func() bool) {
	b.t.Helper()
	for range limit / time.Second {
		b.drive()
		if cond() {
			return
		}
		b.clock.Step(time.Second)
	}
	b.t.Fatalf("not within %s: %s", limit, what)
}

func (b *bench) count(op string) int {
	n := 0
	for _, c := range b.gce.Calls() {
		if c.Op == op {
			n++
		}
	}
	return n
}
