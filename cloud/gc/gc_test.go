package gc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	zoneB = "europe-west1-b"
	zoneU = "us-central1-a"
)

// bench is a collector on a stand-in and one clock.
type bench struct {
	*Collector
	t         *testing.T
	gce       *gcestandin.Server
	clock     *clocktesting.FakeClock
	alive     map[string]bool
	aliveErr  error
	forgotten []string
	results   []string
	log       bytes.Buffer
}

func (b *bench) UIDs(context.Context) (map[string]bool, error) { return b.alive, b.aliveErr }

func (b *bench) Swept(_, result string, orphans, deleted int) {
	b.results = append(b.results, fmt.Sprintf("%s %d %d", result, orphans, deleted))
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, alive: map[string]bool{}, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))}
	b.gce = gcestandin.New(gcestandin.Options{Clock: b.clock})
	srv := httptest.NewServer(b.gce.Handler())
	t.Cleanup(srv.Close)
	cloud, err := gcp.New(context.Background(), gcp.Config{Project: "demo"}, "inst", gcp.Options{Endpoint: srv.URL})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cloud.Close()) })
	cfg := Config{
		Installation: "inst", Providers: []provider.Named{{Name: "gcp-eu", Type: "gcp", Cloud: cloud}},
		Proxies: b, Forget: func(uid string) { b.forgotten = append(b.forgotten, uid) },
		Bucket: provider.NewBucket(100, 100), Interval: 10 * time.Minute, MinAge: 10 * time.Minute,
		Clock: b.clock, Metrics: b, Log: slog.New(slog.NewJSONHandler(&b.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	b.Collector = New(cfg)
	return b
}

// vm adds a VM with the label of uid and returns its id.
func (b *bench) vm(zone, uid string, change func(map[string]string)) string {
	b.t.Helper()
	labels := map[string]string{gcp.LabelInstallation: "inst", gcp.LabelUID: uid, gcp.LabelSpecHash: "v1-aa"}
	if change != nil {
		change(labels)
	}
	id, err := b.gce.Add(zone, &computepb.Instance{
		Name: ptr.To("proxy-" + uid), MachineType: ptr.To("zones/z/machineTypes/m"), Labels: labels,
		Disks:             []*computepb.AttachedDisk{{Boot: ptr.To(true), InitializeParams: &computepb.AttachedDiskInitializeParams{SourceImage: ptr.To("i")}}},
		NetworkInterfaces: []*computepb.NetworkInterface{{}},
	})
	require.NoError(b.t, err)
	return id
}

// sweep lets an interval pass and sweeps.
func (b *bench) sweep() {
	b.clock.Step(10*time.Minute + time.Second)
	b.Sweep(b.t.Context())
}

func (b *bench) left() []string {
	var out []string
	for _, vm := range b.gce.VMs() {
		out = append(out, vm.Labels[gcp.LabelUID])
	}
	return out
}

// Row C9: that no Proxy has a UID does not make an orphan at once.
func TestC9OrphanGoesOnTheSecondSweepAndIsLogged(t *testing.T) {
	b := newBench(t, nil)
	id := b.vm(zoneB, "dead", nil)
	b.vm(zoneB, "alive", nil)
	b.alive["alive"] = true
	b.sweep()
	assert.Len(t, b.left(), 2, "seen once")
	b.sweep()
	assert.Equal(t, []string{"alive"}, b.left())
	assert.Equal(t, []string{"dead"}, b.forgotten)
	assert.Equal(t, []string{"done 1 0", "done 1 1"}, b.results)
	for _, want := range []string{`"level":"WARN","msg":"deleting orphan`, `"provider":"gcp-eu"`, `"providerID":"zones/europe-west1-b/instances/proxy-dead"`, `"id":"` + id + `"`, `"uid":"dead"`} {
		assert.Contains(t, b.log.String(), want)
	}
}

// Row C3: an instance that has just been made is nobody's yet.
func TestC3YoungInstanceIsLeftAlone(t *testing.T) {
	b := newBench(t, nil)
	b.sweep()
	b.vm(zoneB, "new", nil)
	for range 9 {
		b.clock.Step(time.Minute)
		b.Sweep(t.Context())
	}
	assert.Len(t, b.left(), 1)
	assert.Equal(t, "done 0 0", b.results[len(b.results)-1], "not even suspected")
	b.sweep()
	assert.Len(t, b.left(), 1, "suspected for the first time")
	b.sweep()
	assert.Empty(t, b.left())
}

// Row C3: the second look finds the Proxy that the first missed.
func TestC3SecondLookClearsASuspect(t *testing.T) {
	b := newBench(t, nil)
	b.vm(zoneB, "a", nil)
	b.sweep()
	b.alive["a"] = true
	b.sweep()
	b.alive = map[string]bool{}
	b.sweep()
	assert.Len(t, b.left(), 1, "two sweeps in a row")
	b.sweep()
	assert.Empty(t, b.left())
}

// Row C4: an API server that shows no Proxies, or fails, is no reason to delete a
// fleet.
func TestC4EmptyProxyListDeletesNothing(t *testing.T) {
	b := newBench(t, nil)
	for i := range 50 {
		b.vm(zoneB, fmt.Sprintf("p%d", i), nil)
	}
	for range 3 {
		b.sweep()
	}
	assert.Len(t, b.left(), 50)
	assert.Equal(t, "refused 50 0", b.results[2])
	assert.Contains(t, b.log.String(), `"level":"ERROR","msg":"orphan sweep refused`)

	b.aliveErr = errors.New("connection refused")
	b.sweep()
	assert.Equal(t, "failed 0 0", b.results[3])
	assert.Len(t, b.left(), 50)
}

func TestC4BreakerIsThreeOrAFifth(t *testing.T) {
	for n, most := range map[int]int{0: 3, 1: 3, 15: 3, 19: 3, 20: 4, 50: 10, 1000: 200} {
		assert.Equal(t, most, breaker(n), n)
	}
	b := newBench(t, nil)
	for i := range 20 {
		uid := fmt.Sprintf("p%d", i)
		b.vm(zoneB, uid, nil)
		b.alive[uid] = i >= 5
	}
	b.sweep()
	b.sweep()
	assert.Len(t, b.left(), 20, "five of twenty are too many")
	b.alive["p0"] = true
	b.sweep()
	assert.Len(t, b.left(), 16, "four are not")
}

// Rows C8 and C10: other installations share the project, and so do VMs that are
// nobody's.
func TestC8OnlyProvableOrphansGo(t *testing.T) {
	b := newBench(t, nil)
	b.vm(zoneB, "other", func(l map[string]string) { l[gcp.LabelInstallation] = "other" })
	b.vm(zoneB, "none", func(l map[string]string) { delete(l, gcp.LabelInstallation) })
	b.vm(zoneB, "nouid", func(l map[string]string) { delete(l, gcp.LabelUID) })
	b.sweep()
	b.sweep()
	b.sweep()
	assert.Len(t, b.left(), 3)
	assert.Equal(t, "done 0 0", b.results[2])
}

// Even if a provider lists too much, labels decide.
func TestC8OrphansIsPureAndChecksEveryLabel(t *testing.T) {
	old := time.Unix(1000, 0)
	ok := provider.Instance{ID: "1", UID: "u", Installation: "inst", CreatedAt: old}
	change := func(f func(*provider.Instance)) []provider.Instance {
		vm := ok
		f(&vm)
		return []provider.Instance{vm}
	}
	before := old.Add(time.Second)
	assert.Len(t, orphans([]provider.Instance{ok}, nil, "inst", before), 1)
	for name, vms := range map[string][]provider.Instance{
		"installation": change(func(vm *provider.Instance) { vm.Installation = "other" }),
		"no uid":       change(func(vm *provider.Instance) { vm.UID = "" }),
		"no id":        change(func(vm *provider.Instance) { vm.ID = "" }),
		"young":        change(func(vm *provider.Instance) { vm.CreatedAt = before }),
		"no age":       change(func(vm *provider.Instance) { vm.CreatedAt = time.Time{} }),
	} {
		assert.Empty(t, orphans(vms, nil, "inst", before), name)
	}
	assert.Empty(t, orphans([]provider.Instance{ok}, map[string]bool{"u": true}, "inst", before))
}

// Row D12: a list with gaps says nothing, not even about what it shows.
func TestD12PartialListSkipsTheSweep(t *testing.T) {
	for _, mode := range []gcestandin.ZoneMode{gcestandin.ZoneUnreachable, gcestandin.ZoneUnreachableLate, gcestandin.ZoneSilent} {
		b := newBench(t, nil)
		b.vm(zoneB, "dead", nil)
		b.sweep()
		b.gce.SetZone(zoneU, mode)
		b.sweep()
		assert.Len(t, b.left(), 1)
		assert.Equal(t, "partial 0 0", b.results[1])
		b.gce.SetZone(zoneU, gcestandin.ZoneUp)
		b.sweep()
		assert.Empty(t, b.left(), "the skipped sweep did not clear the suspect")
	}
}

func TestFailedListSkipsTheSweep(t *testing.T) {
	b := newBench(t, nil)
	b.vm(zoneB, "dead", nil)
	b.sweep()
	b.gce.AddFault(gcestandin.Fault{Op: "list", Count: 1, Status: 500})
	b.sweep()
	assert.Equal(t, "failed 0 0", b.results[1])
	assert.Len(t, b.left(), 1)
}

func TestDryRunDeletesNothingAndSaysWhatItWould(t *testing.T) {
	b := newBench(t, func(c *Config) { c.DryRun = true })
	b.vm(zoneB, "dead", nil)
	b.sweep()
	b.sweep()
	b.sweep()
	assert.Len(t, b.left(), 1)
	assert.Empty(t, b.forgotten)
	assert.Contains(t, b.log.String(), "would be deleted")
	assert.Equal(t, "done 1 0", b.results[2])
}

func TestWhatChangedSinceTheListIsLeftAlone(t *testing.T) {
	tests := map[string]func(*bench){
		"another UID":   func(b *bench) { _ = b.gce.Relabel(zoneB, "proxy-dead", map[string]string{gcp.LabelUID: "x"}) },
		"being deleted": func(b *bench) { _ = b.gce.SetStatus(zoneB, "proxy-dead", "STOPPING") },
		"gone":          func(b *bench) { _ = b.gce.Remove(zoneB, "proxy-dead") },
		"unreadable":    func(b *bench) { b.gce.AddFault(gcestandin.Fault{Op: "get", Status: 403}) },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.vm(zoneB, "dead", nil)
			b.sweep()
			// Between the list and the last look, that is while Proxies are listed.
			b.cfg.Proxies = uidsFunc(func() (map[string]bool, error) { happens(b); return nil, nil })
			b.sweep()
			assert.Equal(t, "done 1 0", b.results[1])
			assert.Empty(t, b.forgotten)
			for _, c := range b.gce.Calls() {
				assert.NotEqual(t, "delete", c.Op)
			}
		})
	}
}

type uidsFunc func() (map[string]bool, error)

func (f uidsFunc) UIDs(context.Context) (map[string]bool, error) { return f() }

// A Proxy that is made while the sweep goes on is seen: instances are listed
// first.
func TestProxiesAreListedAfterInstances(t *testing.T) {
	b := newBench(t, nil)
	listed := false
	b.cfg.Proxies = uidsFunc(func() (map[string]bool, error) {
		listed = len(b.gce.Calls()) == 1
		return nil, nil
	})
	b.sweep()
	assert.True(t, listed)
}

func TestRefusedDeleteIsTriedAgain(t *testing.T) {
	b := newBench(t, nil)
	b.vm(zoneB, "dead", nil)
	require.NoError(t, b.gce.Protect(zoneB, "proxy-dead", true))
	b.sweep()
	b.sweep()
	assert.Equal(t, "done 1 0", b.results[1])
	require.NoError(t, b.gce.Protect(zoneB, "proxy-dead", false))
	b.sweep()
	assert.Empty(t, b.left())
}

func TestAccountsAreSweptOnce(t *testing.T) {
	b := newBench(t, nil)
	b.cfg.Providers = append(b.cfg.Providers, b.cfg.Providers[0])
	b.sweep()
	assert.Len(t, b.gce.Calls(), 1)
}

func TestRunSweepsEachIntervalAndNotBefore(t *testing.T) {
	b := newBench(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan struct{}, 10)
	b.cfg.Proxies = uidsFunc(func() (map[string]bool, error) { swept <- struct{}{}; return nil, nil })
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	require.Eventually(t, b.clock.HasWaiters, 5*time.Second, time.Millisecond)
	b.clock.Step(9 * time.Minute)
	assert.Empty(t, swept)
	b.clock.Step(time.Minute)
	<-swept
	cancel()
	<-done
}

func TestPaceEndsWithItsContext(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Bucket = provider.NewBucket(0.001, 1) })
	assert.True(t, b.pace(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { done <- b.pace(ctx) }()
	require.Eventually(t, b.clock.HasWaiters, 5*time.Second, time.Millisecond)
	cancel()
	assert.False(t, <-done)
}
