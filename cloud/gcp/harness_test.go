package gcp

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	zoneB   = "europe-west1-b"
	testUID = "0b6ad3a8-5a44-4c3e-9d4c-0d7c6a7b1c01"
)

// rig is a Cloud on a stand-in with a clock that tests advance.
type rig struct {
	*Cloud
	gce   *gcestandin.Server
	clock *clocktesting.FakePassiveClock
}

func newRig(t *testing.T, cfg Config, opts gcestandin.Options) *rig {
	t.Helper()
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	opts.Clock = clk
	gce := gcestandin.New(opts)
	srv := httptest.NewServer(gce.Handler())
	t.Cleanup(srv.Close)
	if cfg.Project == "" {
		cfg.Project = "demo"
	}
	c, err := New(context.Background(), cfg, "inst", Options{Endpoint: srv.URL, Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return &rig{Cloud: c, gce: gce, clock: clk}
}

func (r *rig) pass(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

func testInsert() provider.InsertRequest {
	return provider.InsertRequest{
		Ref:          provider.Ref{Zone: zoneB, Name: v1alpha1.InstanceName(types.UID(testUID))},
		RequestID:    uuid.NewString(),
		Installation: "inst",
		Want: adapter.PutRequest{
			UID: testUID, Namespace: "crawl", Proxy: "eu.a", SpecHash: "v1-0a", Port: 3128, UserData: "#cloud-config\n",
			Placement: v1alpha1.Placement{
				Zone: zoneB, MachineType: "e2-micro", Image: "projects/ubuntu-os-cloud/global/images/family/ubuntu-minimal-2404-lts-amd64",
			},
		},
	}
}
