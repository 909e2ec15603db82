package gcestandin

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
)

const zoneB = "europe-west1-b"

func TestVMFromInsertToDelete(t *testing.T) {
	b := newHarness(t, Options{Timing: Timing{
		Provisioning: 2 * time.Second, Staging: 3 * time.Second, Address: time.Second,
		Insert: 4 * time.Second, Delete: 10 * time.Second,
	}})
	op, err := b.insert(machine("a"), "")
	require.NoError(t, err)
	assert.Equal(t, computepb.Operation_RUNNING, op.GetStatus())

	inst, err := b.get("a")
	require.NoError(t, err)
	assert.Equal(t, "PROVISIONING", inst.GetStatus())
	assert.Equal(t, op.GetTargetId(), inst.GetId())
	assert.Contains(t, inst.GetCreationTimestamp(), "-07:00", "real timestamps carry an offset")
	created, err := time.Parse(time.RFC3339, inst.GetCreationTimestamp())
	require.NoError(t, err)
	assert.True(t, created.Equal(b.clock.Now()))

	status := func() (string, string) {
		inst, err := b.get("a")
		require.NoError(t, err)
		return inst.GetStatus(), inst.GetNetworkInterfaces()[0].GetAccessConfigs()[0].GetNatIP()
	}
	b.pass(2 * time.Second)
	s, _ := status()
	assert.Equal(t, "STAGING", s)
	assert.Equal(t, computepb.Operation_RUNNING, b.operation(op.GetName()).GetStatus())
	b.pass(3 * time.Second)
	s, ip := status()
	assert.Equal(t, "RUNNING", s)
	assert.Empty(t, ip, "running without an address yet")
	assert.Equal(t, computepb.Operation_DONE, b.operation(op.GetName()).GetStatus())
	b.pass(time.Second)
	_, ip = status()
	assert.Equal(t, "203.0.0.1", ip)

	del, err := b.remove("a")
	require.NoError(t, err)
	s, _ = status()
	assert.Equal(t, "STOPPING", s)
	_, err = b.remove("a")
	code, reason := refusal(t, err)
	assert.Equal(t, 400, code)
	assert.Equal(t, "resourceNotReady", reason)
	b.pass(10 * time.Second)
	_, err = b.get("a")
	code, reason = refusal(t, err)
	assert.Equal(t, 404, code)
	assert.Equal(t, "notFound", reason)
	assert.Equal(t, computepb.Operation_DONE, b.operation(del.GetName()).GetStatus())
}

func TestNameIsTakenUntilTheVMIsGone(t *testing.T) {
	b := newHarness(t, Options{Timing: Timing{Delete: time.Minute}})
	first, err := b.insert(machine("a"), "")
	require.NoError(t, err)
	_, err = b.remove("a")
	require.NoError(t, err)
	_, err = b.insert(machine("a"), "")
	code, reason := refusal(t, err)
	assert.Equal(t, 409, code)
	assert.Equal(t, "alreadyExists", reason)
	b.pass(time.Minute)
	second, err := b.insert(machine("a"), "")
	require.NoError(t, err)
	assert.NotEqual(t, first.GetTargetId(), second.GetTargetId(), "same name, another VM")
}

func TestRequestIDMakesRetriesIdempotent(t *testing.T) {
	b := newHarness(t, Options{})
	id := uuid.NewString()
	first, err := b.insert(machine("a"), id)
	require.NoError(t, err)
	again, err := b.insert(machine("a"), id)
	require.NoError(t, err)
	assert.Equal(t, first.GetName(), again.GetName())
	assert.Len(t, b.VMs(), 1)

	for _, bad := range []string{"no-uuid", uuid.Nil.String()} {
		_, err = b.insert(machine("b"), bad)
		code, _ := refusal(t, err)
		assert.Equal(t, 400, code, bad)
	}
}

func TestStatuses(t *testing.T) {
	b := newHarness(t, Options{})
	_, err := b.insert(machine("a"), "")
	require.NoError(t, err)
	for _, status := range append(statuses, "HIBERNATING") {
		require.NoError(t, b.SetStatus(zoneB, "a", status))
		inst, err := b.get("a")
		require.NoError(t, err)
		assert.Equal(t, status, inst.GetStatus())
	}
	assert.Len(t, statuses, 12)
	for _, status := range statuses {
		assert.Contains(t, computepb.Instance_Status_value, status, "Compute knows it")
	}
	assert.ErrorContains(t, b.SetStatus(zoneB, "none", "RUNNING"), "no VM none")
}

func TestLimitsAreEnforcedInBytes(t *testing.T) {
	label := func(k, v string) func(*computepb.Instance) {
		return func(r *computepb.Instance) { r.Labels = map[string]string{k: v} }
	}
	meta := func(pairs ...string) func(*computepb.Instance) {
		return func(r *computepb.Instance) { r.Metadata = metadata(pairs...) }
	}
	tags := func(items ...string) func(*computepb.Instance) {
		return func(r *computepb.Instance) { r.Tags = &computepb.Tags{Items: items} }
	}
	many := map[string]string{}
	for i := range 65 {
		many["k"+strings.Repeat("x", i%60)+string(rune('a'+i%26))] = ""
	}
	tests := map[string]struct {
		change func(*computepb.Instance)
		ok     bool
	}{
		"label of 63":          {label("k", strings.Repeat("v", 63)), true},
		"label of 64":          {label("k", strings.Repeat("v", 64)), false},
		"capital in label":     {label("k", "V"), false},
		"dot in label":         {label("k", "a.b"), false},
		"label key with digit": {label("1k", "v"), false},
		"65 labels":            {func(r *computepb.Instance) { r.Labels = many }, false},
		"value of 256 KiB":     {meta("user-data", strings.Repeat("x", 262_144)), true},
		"value over":           {meta("user-data", strings.Repeat("x", 262_145)), false},
		"value over in bytes":  {meta("user-data", strings.Repeat("é", 131_073)), false},
		"total over":           {meta("a", strings.Repeat("x", 262_144), "b", strings.Repeat("x", 262_143)), false},
		"metadata key of 127":  {meta(strings.Repeat("k", 127), "v"), true},
		"metadata key of 128":  {meta(strings.Repeat("k", 128), "v"), false},
		"dot in metadata key":  {meta("a.b", "v"), false},
		"metadata key twice":   {meta("a", "1", "a", "2"), false},
		"tag":                  {tags("crawl-proxy"), true},
		"tag of capitals":      {tags("Crawl"), false},
		"tag twice":            {tags("a", "a"), false},
		"name of capitals":     {func(r *computepb.Instance) { r.Name = ptr.To("A") }, false},
		"name of 64":           {func(r *computepb.Instance) { r.Name = ptr.To(strings.Repeat("a", 64)) }, false},
		"no disk":              {func(r *computepb.Instance) { r.Disks = nil }, false},
		"no image":             {func(r *computepb.Instance) { r.Disks[0].InitializeParams = nil }, false},
		"no network":           {func(r *computepb.Instance) { r.NetworkInterfaces = nil }, false},
		"machine type":         {func(r *computepb.Instance) { r.MachineType = ptr.To("e2-micro") }, false},
		"restarting Spot":      {func(r *computepb.Instance) { r.Scheduling = spot(true, "DELETE") }, false},
		"Spot":                 {func(r *computepb.Instance) { r.Scheduling = spot(false, "DELETE") }, true},
		"termination of no Spot": {func(r *computepb.Instance) {
			r.Scheduling = &computepb.Scheduling{InstanceTerminationAction: ptr.To("DELETE")}
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, Options{})
			r := machine("a")
			tt.change(r)
			_, err := b.insert(r, "")
			if tt.ok {
				require.NoError(t, err)
				return
			}
			code, _ := refusal(t, err)
			assert.Equal(t, 400, code)
			assert.Empty(t, b.VMs())
		})
	}
}

func metadata(pairs ...string) *computepb.Metadata {
	m := &computepb.Metadata{}
	for i := 0; i < len(pairs); i += 2 {
		m.Items = append(m.Items, &computepb.Items{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return m
}

func spot(restart bool, action string) *computepb.Scheduling {
	return &computepb.Scheduling{
		ProvisioningModel: ptr.To("SPOT"), InstanceTerminationAction: &action, AutomaticRestart: &restart,
	}
}

func TestNotFound(t *testing.T) {
	b := newHarness(t, Options{Images: []string{"projects/debian-cloud/global/images/family/debian-12"}})
	_, err := b.vms.Get(t.Context(), &computepb.GetInstanceRequest{Project: "other", Zone: zoneB, Instance: "a"})
	code, _ := refusal(t, err)
	assert.Equal(t, 404, code)
	assert.ErrorContains(t, err, "projects/other")
	_, err = b.vms.Get(t.Context(), &computepb.GetInstanceRequest{Project: "demo", Zone: "mars-a", Instance: "a"})
	assert.ErrorContains(t, err, "zones/mars-a")

	r := machine("a")
	r.Disks[0].InitializeParams.SourceImage = ptr.To("projects/debian-cloud/global/images/family/debian-10")
	_, err = b.insert(r, "")
	code, _ = refusal(t, err)
	assert.Equal(t, 404, code)
	assert.ErrorContains(t, err, "debian-10")
	b.AddImage("projects/debian-cloud/global/images/family/debian-10")
	_, err = b.insert(r, "")
	assert.NoError(t, err)
}

func TestUnknownFieldsAreRefused(t *testing.T) {
	b := newHarness(t, Options{})
	resp, err := http.Post(b.url+"/compute/v1/projects/demo/zones/"+zoneB+"/instances", "application/json", strings.NewReader(`{"nmae":"a"}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

func TestCallsAreRecorded(t *testing.T) {
	b := newHarness(t, Options{})
	id := uuid.NewString()
	_, err := b.insert(machine("a"), id)
	require.NoError(t, err)
	_, _ = b.get("none")
	calls := b.Calls()
	require.Len(t, calls, 2)
	assert.Equal(t, Call{Op: "insert", Zone: zoneB, Name: "a", RequestID: id, At: b.clock.Now(), Status: 200}, calls[0])
	assert.Equal(t, 404, calls[1].Status)
	b.ForgetCalls()
	assert.Empty(t, b.Calls())
}

func TestCancelledRequestIsNotHandled(t *testing.T) {
	b := newHarness(t, Options{})
	b.AddFault(Fault{Op: "get", DelayMillis: 60_000})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := b.vms.Get(ctx, &computepb.GetInstanceRequest{Project: "demo", Zone: zoneB, Instance: "a"})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}
