package gcp

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func TestVMFromInsertToDelete(t *testing.T) {
	r := newRig(t, Config{}, gcestandin.Options{Timing: gcestandin.Timing{
		Provisioning: time.Second, Address: time.Second, Insert: time.Second, Delete: 30 * time.Second,
	}})
	req := testInsert()
	op, err := r.Insert(t.Context(), req)
	require.NoError(t, err)
	assert.False(t, op.Done)
	inst, err := r.Get(t.Context(), req.Ref)
	require.NoError(t, err)
	assert.Equal(t, provider.Instance{
		Ref: req.Ref, ID: op.TargetID, UID: testUID, Installation: "inst", SpecHash: "v1-0a", Port: 3128,
		State: adapter.StateProvisioning, Status: "PROVISIONING", CreatedAt: r.clock.Now(),
	}, inst)

	r.pass(time.Second)
	op, err = r.Operation(t.Context(), op.Zone, op.Name)
	require.NoError(t, err)
	assert.True(t, op.Done)
	assert.NoError(t, op.Err)
	r.pass(time.Second)
	inst, err = r.Get(t.Context(), req.Ref)
	require.NoError(t, err)
	assert.Equal(t, adapter.StateRunning, inst.State)
	assert.Equal(t, "203.0.0.1", inst.IP)

	del, err := r.Delete(t.Context(), req.Ref, testInsert().RequestID)
	require.NoError(t, err)
	assert.Equal(t, inst.ID, del.TargetID)
	inst, err = r.Get(t.Context(), req.Ref)
	require.NoError(t, err)
	assert.Equal(t, adapter.StateStopping, inst.State)
	assert.True(t, inst.Leaving)
	r.pass(30 * time.Second)
	_, err = r.Get(t.Context(), req.Ref)
	assert.ErrorIs(t, err, provider.ErrNotFound)
	_, err = r.Delete(t.Context(), req.Ref, testInsert().RequestID)
	assert.ErrorIs(t, err, provider.ErrNotFound)
}

// Every optional field is within the limits that the stand-in enforces.
func TestFullInsertIsAcceptedAndArrivesUnchanged(t *testing.T) {
	r := newRig(t, Config{ServiceAccount: "a@demo.iam.gserviceaccount.com", NetworkTags: []string{"b"}}, gcestandin.Options{})
	req := testInsert()
	p := &req.Want.Placement
	p.Network, p.Subnetwork, p.DiskSizeGB, p.Spot = "n", "s", 20, true
	_, err := r.Insert(t.Context(), req)
	require.NoError(t, err)
	built, err := buildInsert(r.cfg, req)
	require.NoError(t, err)

	got := r.gce.VMs()[0].Resource
	want := proto.CloneOf(built.GetInstanceResource())
	want.Id, want.Kind, want.SelfLink, want.CreationTimestamp, want.Zone = got.Id, got.Kind, got.SelfLink, got.CreationTimestamp, got.Zone
	assert.True(t, proto.Equal(want, got), "want %v, got %v", want, got)
}

// Section 3.4: inserts are idempotent.
func TestRetriedInsertIsOneVM(t *testing.T) {
	r := newRig(t, Config{}, gcestandin.Options{})
	r.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropAnswer: true})
	req := testInsert()
	_, err := r.Insert(t.Context(), req)
	require.Error(t, err)
	op, err := r.Insert(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, r.gce.VMs(), 1)
	assert.Equal(t, r.gce.VMs()[0].ID, op.TargetID)
}

func TestInvalidInsertMakesNoCall(t *testing.T) {
	r := newRig(t, Config{}, gcestandin.Options{})
	req := testInsert()
	req.Want.Placement.MachineType = ""
	_, err := r.Insert(t.Context(), req)
	assert.ErrorIs(t, err, provider.ErrPermanent)
	assert.False(t, provider.MayHaveTakenEffect(err))
	assert.Empty(t, r.gce.Calls())
}

func TestEndpointReceivesNoCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file")
	r := newRig(t, Config{}, gcestandin.Options{})
	_, err := r.List(t.Context())
	require.NoError(t, err)
	assert.False(t, r.gce.Calls()[0].Authorized)
}

func TestMissingCredentialsError(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file")
	_, err := New(context.Background(), Config{Project: "demo"}, "inst", Options{})
	assert.ErrorContains(t, err, "Workload Identity")
}

// Section 3.9: all twelve statuses, and one that does not exist yet.
func TestStates(t *testing.T) {
	type mapped struct {
		state   adapter.State
		leaving bool
	}
	want := map[string]mapped{
		"PENDING":        {adapter.StateProvisioning, false},
		"PROVISIONING":   {adapter.StateProvisioning, false},
		"STAGING":        {adapter.StateProvisioning, false},
		"RUNNING":        {adapter.StateRunning, false},
		"PENDING_STOP":   {adapter.StateStopping, false},
		"STOPPING":       {adapter.StateStopping, true},
		"DEPROVISIONING": {adapter.StateStopping, true},
		"SUSPENDING":     {adapter.StateStopping, true},
		"STOPPED":        {adapter.StateStopped, false},
		"TERMINATED":     {adapter.StateStopped, false},
		"SUSPENDED":      {adapter.StateStopped, false},
		"REPAIRING":      {adapter.StateProvisioning, false},
		"HIBERNATING":    {adapter.StateProvisioning, false},
		"":               {adapter.StateProvisioning, false},
	}
	for status, m := range want {
		s, leaving := state(status, "1.2.3.4")
		assert.Equal(t, m, mapped{s, leaving}, status)
	}
	for status := range computepb.Instance_Status_value {
		if status != "UNDEFINED_STATUS" {
			assert.Contains(t, want, status, "a status that this release does not decide about")
		}
	}
}

// Section 3.10: natIP can be empty although the VM runs.
func TestRunningWithoutAddressIsProvisioning(t *testing.T) {
	s, _ := state("RUNNING", "")
	assert.Equal(t, adapter.StateProvisioning, s)
}

// Row F7: creation times carry Google's offset.
func TestF7CreationTimeKeepsItsOffset(t *testing.T) {
	in := &computepb.Instance{Name: ptr.To("a"), CreationTimestamp: ptr.To("2026-03-08T01:59:59.123-08:00")}
	got := fromWire(zoneB, in).CreatedAt
	assert.Equal(t, time.Date(2026, 3, 8, 9, 59, 59, 123e6, time.UTC), got)
	in.CreationTimestamp = ptr.To("yesterday")
	assert.Zero(t, fromWire(zoneB, in).CreatedAt)
}

func TestProviderIDRoundTrip(t *testing.T) {
	var c Cloud
	ref := provider.Ref{Zone: zoneB, Name: "proxy-a"}
	assert.Equal(t, "zones/europe-west1-b/instances/proxy-a", c.ProviderID(ref))
	got, err := c.ParseProviderID(c.ProviderID(ref))
	require.NoError(t, err)
	assert.Equal(t, ref, got)
	for _, bad := range []string{"", "ns/pod", "zones//instances/a", "zones/a/instances/../b", "zones/a/instances/a/b", "x/zones/a/instances/b"} {
		_, err := c.ParseProviderID(bad)
		assert.Error(t, err, bad)
	}
}

func FuzzParseProviderID(f *testing.F) {
	f.Add("zones/europe-west1-b/instances/proxy-a")
	f.Add("zones/a/instances/..")
	f.Fuzz(func(t *testing.T, id string) {
		var c Cloud
		if ref, err := c.ParseProviderID(id); err == nil {
			require.Equal(t, id, c.ProviderID(ref))
		}
	})
}
