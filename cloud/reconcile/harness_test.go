package reconcile

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
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

// harness is a reconciler on a stand-in, with one clock that the test advances. The
// test itself makes all calls, one after the other, so that it is deterministic.
type harness struct {
	t          *testing.T
	gce        *gcestandin.Server
	clock      *clocktesting.FakeClock
	cloud      *gcp.Cloud
	reconciler *Reconciler
	opts       Options
	made       *madeCount
	// progress of a scenario.
	progress func(*hookProxy) bool

	mu sync.Mutex
	// alive are the VMs that exist, by id, with their UIDs.
	alive map[string]string
	// doubles are moments at which a UID had two VMs.
	doubles []string
}

// direct serves requests with a handler, without a network.
type direct struct{ http.Handler }

// RoundTrip implements http.RoundTripper. http.ErrAbortHandler becomes the error of a
// connection that was closed without a response.
func (d direct) RoundTrip(r *http.Request) (res *http.Response, err error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			res, err = nil, io.ErrUnexpectedEOF
		default:
			panic(v)
		}
	}()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	rec := httptest.NewRecorder()
	d.ServeHTTP(rec, r)
	return rec.Result(), nil
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

type harnessConfig struct {
	timing gcestandin.Timing
	images []string
	gcp    gcp.Config
	wrap   func(provider.Cloud) provider.Cloud
	change func(*Options)
}

func newHarness(t *testing.T, cfg harnessConfig) *harness {
	t.Helper()
	b := &harness{t: t, made: &madeCount{counts: map[string]int{}}, alive: map[string]string{}}
	b.clock = clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	b.gce = gcestandin.New(gcestandin.Options{Timing: cfg.timing, Images: cfg.images, Clock: b.clock, OnChange: b.watch})
	cfg.gcp.Project = "demo"
	var err error
	b.cloud, err = gcp.New(context.Background(), cfg.gcp, "inst", gcp.Options{
		Endpoint: "http://gce.test", Timeout: 30 * time.Second, Transport: direct{b.gce.Handler()},
	})
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
		Clock: b.clock, Made: b.made.Made, Log: slog.New(slog.DiscardHandler),
	}
	if cfg.change != nil {
		cfg.change(&b.opts)
	}
	b.restart()
	t.Cleanup(func() { require.Empty(t, b.doubles, "a UID had two VMs") })
	return b
}

// watch receives every change of the stand-in.
func (b *harness) watch(c gcestandin.Change) {
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

// restart replaces the reconciler and its cache, as after a kill.
func (b *harness) restart() { b.reconciler = New(b.opts) }

// drive makes every call that is due now.
func (b *harness) drive() {
	b.t.Helper()
	for range 10_000 {
		busy := false
		for _, a := range b.reconciler.accounts {
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
	b.t.Fatal("the reconciler makes calls without end and without time passing")
}

// pass advances the clock in steps of a second and makes the calls that become due.
func (b *harness) pass(d time.Duration) {
	b.t.Helper()
	b.drive()
	for range d / time.Second {
		b.clock.Step(time.Second)
		b.drive()
	}
}

// until advances the clock until cond holds, or fails at its timeout.
func (b *harness) until(limit time.Duration, what string, cond func() bool) {
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

func (b *harness) count(op string) int {
	n := 0
	for _, c := range b.gce.Calls() {
		if c.Op == op {
			n++
		}
	}
	return n
}

// hookProxy is a Proxy as the hook sees it.
type hookProxy struct {
	b   *harness
	req adapter.PutRequest
	// providerID is the last known location, leaving that it was deleted.
	providerID string
	leaving    bool
}

func (b *harness) proxy(n int) *hookProxy {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	return &hookProxy{b: b, req: adapter.PutRequest{
		UID: uid, Namespace: "crawl", Proxy: fmt.Sprintf("p%d", n), SpecHash: "v1-aa", Generation: 1, Port: 3128, UserData: "#cloud-config\n",
		Placement: v1alpha1.Placement{Zone: zoneB, MachineType: "e2-micro", Image: "squid-1"},
	}}
}

func (p *hookProxy) name() string { return v1alpha1.InstanceName(types.UID(p.req.UID)) }

func (p *hookProxy) tryPut() (adapter.Instance, error) {
	return p.b.reconciler.Put("gcp-eu", p.name(), p.req)
}

func (p *hookProxy) put() adapter.Instance {
	p.b.t.Helper()
	got, err := p.tryPut()
	require.NoError(p.b.t, err)
	return got
}

func (p *hookProxy) tryDelete(providerID string) (adapter.Instance, error) {
	return p.b.reconciler.Delete("gcp-eu", p.name(), p.req.UID, providerID)
}

func (p *hookProxy) delete() adapter.Instance {
	p.b.t.Helper()
	got, err := p.tryDelete("")
	require.NoError(p.b.t, err)
	return got
}

// running retries PUT until the instance runs and returns it.
func (p *hookProxy) running() adapter.Instance {
	p.b.t.Helper()
	var got adapter.Instance
	p.b.until(5*time.Minute, "Running", func() bool {
		var err error
		got, err = p.tryPut()
		return err == nil && got.State == adapter.StateRunning
	})
	return got
}

// absent retries DELETE until the instance is confirmed absent, and checks that it is.
func (p *hookProxy) absent() {
	p.b.t.Helper()
	p.b.until(10*time.Minute, "Absent", func() bool {
		got, err := p.tryDelete("")
		return err == nil && got.State == adapter.StateAbsent
	})
	require.Empty(p.b.t, p.vms(), "reported Absent")
}

// vms returns the VMs with the Proxy's UID.
func (p *hookProxy) vms() []gcestandin.VM {
	var out []gcestandin.VM
	for _, vm := range p.b.gce.VMs() {
		if vm.Labels[gcp.LabelUID] == p.req.UID {
			out = append(out, vm)
		}
	}
	return out
}
