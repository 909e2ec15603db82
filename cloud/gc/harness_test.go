package gc

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a collector on a stand-in and one clock.
type harness struct {
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

func (b *harness) UIDs(context.Context) (map[string]bool, error) { return b.alive, b.aliveErr }

func (b *harness) Swept(_, result string, orphans, deleted int) {
	b.results = append(b.results, fmt.Sprintf("%s %d %d", result, orphans, deleted))
}

func newHarness(t *testing.T, change func(*Config)) *harness {
	t.Helper()
	b := &harness{t: t, alive: map[string]bool{}, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))}
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
		Clock: b.clock, Swept: b.Swept, Log: slog.New(slog.NewJSONHandler(&b.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	b.Collector = New(cfg)
	return b
}

// vm adds a VM with the label of uid and returns its id.
func (b *harness) vm(zone, uid string, change func(map[string]string)) string {
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

// sweep advances the clock by an interval and sweeps.
func (b *harness) sweep() {
	b.clock.Step(10*time.Minute + time.Second)
	b.Sweep(b.t.Context())
}

func (b *harness) left() []string {
	var out []string
	for _, vm := range b.gce.VMs() {
		out = append(out, vm.Labels[gcp.LabelUID])
	}
	return out
}
