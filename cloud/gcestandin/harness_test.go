package gcestandin

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a stand-in with Google's own client and a clock that tests advance.
type harness struct {
	*Server
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	vms   *compute.InstancesClient
	ops   *compute.ZoneOperationsClient
	url   string
}

func newHarness(t *testing.T, opts Options) *harness {
	t.Helper()
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	opts.Clock = clk
	s := New(opts)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	use := []option.ClientOption{option.WithEndpoint(srv.URL), option.WithHTTPClient(&http.Client{Transport: tr, Timeout: time.Minute})}
	vms, err := compute.NewInstancesRESTClient(t.Context(), use...)
	require.NoError(t, err)
	*vms.CallOptions = compute.InstancesCallOptions{} // no retries of the client
	ops, err := compute.NewZoneOperationsRESTClient(t.Context(), use...)
	require.NoError(t, err)
	return &harness{Server: s, t: t, clock: clk, vms: vms, ops: ops, url: srv.URL}
}

func (b *harness) pass(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

func machine(name string) *computepb.Instance {
	return &computepb.Instance{
		Name:        ptr.To(name),
		MachineType: ptr.To("zones/europe-west1-b/machineTypes/e2-micro"),
		Disks: []*computepb.AttachedDisk{{Boot: ptr.To(true), InitializeParams: &computepb.AttachedDiskInitializeParams{
			SourceImage: ptr.To("projects/debian-cloud/global/images/family/debian-12"),
		}}},
		NetworkInterfaces: []*computepb.NetworkInterface{{AccessConfigs: []*computepb.AccessConfig{{Type: ptr.To("ONE_TO_ONE_NAT")}}}},
		Labels:            map[string]string{"crawl-installation": "demo"},
	}
}

func (b *harness) insert(r *computepb.Instance, requestID string) (*computepb.Operation, error) {
	req := &computepb.InsertInstanceRequest{Project: "demo", Zone: zoneB, InstanceResource: r}
	if requestID != "" {
		req.RequestId = &requestID
	}
	op, err := b.vms.Insert(b.t.Context(), req)
	if err != nil {
		return nil, err
	}
	return op.Proto(), nil
}

func (b *harness) get(name string) (*computepb.Instance, error) {
	return b.vms.Get(b.t.Context(), &computepb.GetInstanceRequest{Project: "demo", Zone: zoneB, Instance: name})
}

func (b *harness) remove(name string) (*computepb.Operation, error) {
	op, err := b.vms.Delete(b.t.Context(), &computepb.DeleteInstanceRequest{Project: "demo", Zone: zoneB, Instance: name})
	if err != nil {
		return nil, err
	}
	return op.Proto(), nil
}

func (b *harness) operation(name string) *computepb.Operation {
	b.t.Helper()
	op, err := b.ops.Get(b.t.Context(), &computepb.GetZoneOperationRequest{Project: "demo", Zone: zoneB, Operation: name})
	require.NoError(b.t, err)
	return op
}

// page fetches one page and no more.
func (b *harness) page(req *computepb.AggregatedListInstancesRequest) (*computepb.InstanceAggregatedList, error) {
	req.Project = "demo"
	it := b.vms.AggregatedList(b.t.Context(), req)
	_, _, err := it.InternalFetch(int(req.GetMaxResults()), req.GetPageToken())
	if err != nil {
		return nil, err
	}
	return it.Response.(*computepb.InstanceAggregatedList), nil
}

// refusal returns the HTTP code and reason of a Google error.
func refusal(t *testing.T, err error) (int, string) {
	t.Helper()
	var g *googleapi.Error
	require.ErrorAs(t, err, &g)
	require.NotEmpty(t, g.Errors)
	return g.Code, g.Errors[0].Reason
}
