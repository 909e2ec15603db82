package gcestandin

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/googleapi"
)

func TestInsertOperationFails(t *testing.T) {
	b := newHarness(t, Options{Timing: Timing{Insert: 3 * time.Second}})
	b.AddFault(Fault{Op: "insert", Zone: zoneB, Count: 1, OperationError: &OperationError{
		Code: "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", Message: "no e2-micro", ZonesAvailable: "europe-west1-c",
	}})
	op, err := b.insert(machine("a"), "")
	require.NoError(t, err, "the call itself succeeds")
	assert.Nil(t, op.GetError())
	inst, err := b.get("a")
	require.NoError(t, err)
	assert.Equal(t, "PROVISIONING", inst.GetStatus())

	b.pass(3 * time.Second)
	op = b.operation(op.GetName())
	assert.Equal(t, computepb.Operation_DONE, op.GetStatus())
	assert.Nil(t, op.HttpErrorStatusCode, "an error without an HTTP code")
	failed := op.GetError().GetErrors()[0]
	assert.Equal(t, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", failed.GetCode())
	assert.Equal(t, "europe-west1-c", failed.GetErrorDetails()[0].GetErrorInfo().GetMetadatas()["zonesAvailable"])
	_, err = b.get("a")
	code, _ := refusal(t, err)
	assert.Equal(t, 404, code)

	_, err = b.insert(machine("a"), "")
	require.NoError(t, err)
	b.pass(3 * time.Second)
	_, err = b.get("a")
	assert.NoError(t, err, "the fault is used up")
}

func TestOperationErrorCarriesQuotaAndCode(t *testing.T) {
	b := newHarness(t, Options{})
	b.AddFault(Fault{OperationError: &OperationError{Code: "QUOTA_EXCEEDED", HTTPStatus: 403, QuotaMetric: "compute.googleapis.com/in_use_addresses", QuotaLimit: 8}})
	op, err := b.insert(machine("a"), "")
	require.NoError(t, err)
	assert.Equal(t, int32(403), op.GetHttpErrorStatusCode())
	assert.InDelta(t, 8.0, op.GetError().GetErrors()[0].GetErrorDetails()[0].GetQuotaInfo().GetLimit(), 0)
}

func TestDeleteOperationFailsAndTheVMStays(t *testing.T) {
	b := newHarness(t, Options{})
	b.fill(1, zoneB)
	b.AddFault(Fault{Op: "delete", OperationError: &OperationError{Code: "INTERNAL_ERROR"}})
	op, err := b.remove("vm-0000")
	require.NoError(t, err)
	assert.Equal(t, "INTERNAL_ERROR", op.GetError().GetErrors()[0].GetCode())
	inst, err := b.get("vm-0000")
	require.NoError(t, err)
	assert.Equal(t, "RUNNING", inst.GetStatus())
}

func TestOperationNeverEndsWhileTheVMRuns(t *testing.T) {
	b := newHarness(t, Options{})
	b.AddFault(Fault{Op: "insert", OperationNeverEnds: true})
	op, err := b.insert(machine("a"), "")
	require.NoError(t, err)
	b.pass(time.Hour)
	assert.Equal(t, computepb.Operation_RUNNING, b.operation(op.GetName()).GetStatus())
	inst, err := b.get("a")
	require.NoError(t, err)
	assert.Equal(t, "RUNNING", inst.GetStatus())
}

func TestFaultsMatchSkipAndCount(t *testing.T) {
	b := newHarness(t, Options{})
	b.fill(2, zoneB)
	b.AddFault(Fault{Op: "get", Name: "vm-0000", Skip: 1, Count: 2, Status: 403, Reason: "rateLimitExceeded", Message: "Rate Limit Exceeded"})
	outcome := func(name string) int {
		_, err := b.get(name)
		if err == nil {
			return 200
		}
		code, reason := refusal(t, err)
		assert.Equal(t, "rateLimitExceeded", reason)
		return code
	}
	assert.Equal(t, []int{200, 403, 200, 403, 200},
		[]int{outcome("vm-0000"), outcome("vm-0000"), outcome("vm-0001"), outcome("vm-0000"), outcome("vm-0000")})

	b.AddFault(Fault{Status: 403, Reason: "rateLimitExceeded"})
	assert.Equal(t, 403, outcome("vm-0001"))
	b.ClearFaults()
	assert.Equal(t, 200, outcome("vm-0001"))
}

func TestDroppedAnswerTookEffectAndDroppedRequestDidNot(t *testing.T) {
	b := newHarness(t, Options{})
	b.AddFault(Fault{Op: "insert", Name: "a", DropAnswer: true})
	b.AddFault(Fault{Op: "insert", Name: "b", DropRequest: true})
	for _, name := range []string{"a", "b"} {
		_, err := b.insert(machine(name), "")
		require.Error(t, err)
		var g *googleapi.Error
		assert.NotErrorAs(t, err, &g, "no answer at all")
	}
	vms := b.VMs()
	require.Len(t, vms, 1)
	assert.Equal(t, "a", vms[0].Name)
	for _, c := range b.Calls() {
		assert.Zero(t, c.Status)
	}
}

func TestAddFaultRefusesInvalidFaults(t *testing.T) {
	for _, f := range []Fault{
		{Op: "destroy"}, {Skip: -1}, {Count: -1}, {DelayMillis: -1}, {Status: 200}, {OperationError: &OperationError{}},
	} {
		assert.Panics(t, func() { New(Options{}).AddFault(f) }, "%+v", f)
	}
}

func TestPreemption(t *testing.T) {
	b := newHarness(t, Options{Timing: Timing{Delete: 30 * time.Second}})
	r := machine("spot")
	r.Scheduling = spot(false, "DELETE")
	_, err := b.insert(r, "")
	require.NoError(t, err)
	_, err = b.insert(machine("plain"), "")
	require.NoError(t, err)
	require.NoError(t, b.Preempt(zoneB, "spot"))
	require.NoError(t, b.Preempt(zoneB, "plain"))
	vms := b.VMs()
	assert.Equal(t, "TERMINATED", vms[0].Status)
	assert.Equal(t, "STOPPING", vms[1].Status)
	b.pass(30 * time.Second)
	vms = b.VMs()
	require.Len(t, vms, 1)
	assert.Equal(t, "plain", vms[0].Name)
}

func TestDeletionProtection(t *testing.T) {
	b := newHarness(t, Options{})
	b.fill(1, zoneB)
	require.NoError(t, b.Protect(zoneB, "vm-0000", true))
	_, err := b.remove("vm-0000")
	code, reason := refusal(t, err)
	assert.Equal(t, 400, code)
	assert.Equal(t, "invalidResourceUsage", reason)
	require.NoError(t, b.Protect(zoneB, "vm-0000", false))
	_, err = b.remove("vm-0000")
	assert.NoError(t, err)
}

func TestForgottenOperations(t *testing.T) {
	b := newHarness(t, Options{})
	op, err := b.insert(machine("a"), "")
	require.NoError(t, err)
	b.ForgetOperations()
	_, err = b.ops.Get(t.Context(), &computepb.GetZoneOperationRequest{Project: "demo", Zone: zoneB, Operation: op.GetName()})
	code, _ := refusal(t, err)
	assert.Equal(t, 404, code)
}

// States that the adapter must never cause may be short; OnChange observes every one.
func TestOnChangeSeesEveryStep(t *testing.T) {
	var seen []string
	b := newHarness(t, Options{OnChange: func(c Change) {
		seen = append(seen, c.Kind+" "+c.VM.Name+" "+c.VM.Status)
	}})
	b.fill(2, zoneB)
	require.NoError(t, b.Relabel(zoneB, "vm-0001", map[string]string{"a": "b"}))
	require.NoError(t, b.Remove(zoneB, "vm-0000"))
	assert.Equal(t, []string{"inserted vm-0000 RUNNING", "inserted vm-0001 RUNNING", "changed vm-0001 RUNNING", "changed vm-0000 STOPPING", "removed vm-0000 STOPPING"}, seen)
	assert.Equal(t, map[string]string{"a": "b"}, b.VMs()[0].Labels)
}

func TestControlSurface(t *testing.T) {
	b := newHarness(t, Options{})
	b.fill(2, zoneB)
	defer http.DefaultClient.CloseIdleConnections()
	do := func(method, path, body string) (int, string) {
		req, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	const vm = "/control/vms/europe-west1-b/vm-0000"
	tests := []struct {
		method, path, body string
		want               int
		say                string
	}{
		{"PUT", vm, `{"status":"TERMINATED","protected":true}`, 204, ""},
		{"PUT", vm, `{"status":"SLEEPING"}`, 400, `status "SLEEPING"`},
		{"PUT", vm, `{"state":"x"}`, 400, "unknown field"},
		{"PUT", "/control/vms/europe-west1-b/none", `{"status":""}`, 404, "no VM none"},
		{"POST", vm + "/preempt", "", 204, ""},
		{"POST", "/control/vms/europe-west1-b/vm-0001/remove", "", 204, ""},
		{"POST", "/control/vms/europe-west1-b/vm-0001/remove", "", 404, "no VM vm-0001"},
		{"POST", "/control/faults", `{"op":"get","count":1,"status":503}`, 204, ""},
		{"POST", "/control/faults", `{"op":"fetch"}`, 400, `op "fetch"`},
		{"PUT", "/control/zones/europe-west1-c", `{"mode":"unreachable"}`, 204, ""},
		{"PUT", "/control/zones/europe-west1-c", `{"mode":"maybe"}`, 400, `mode "maybe"`},
		{"PUT", "/control/zones/mars-a", `{"mode":""}`, 404, `no zone "mars-a"`},
		{"DELETE", "/control/faults", "", 204, ""},
	}
	for _, tt := range tests {
		code, text := do(tt.method, tt.path, tt.body)
		assert.Equal(t, tt.want, code, "%s %s: %s", tt.method, tt.path, text)
		assert.Contains(t, text, tt.say)
	}

	code, text := do("GET", "/control/vms", "")
	require.Equal(t, 200, code)
	var vms []VM
	require.NoError(t, json.Unmarshal([]byte(text), &vms))
	require.Len(t, vms, 1)
	assert.Equal(t, "TERMINATED", vms[0].Status)
	_, err := b.get("vm-0000")
	require.NoError(t, err, "the fault was removed")
	_, text = do("GET", "/control/calls", "")
	assert.Contains(t, text, `"op":"get"`)
	_, _ = do("DELETE", "/control/calls", "")
	assert.Empty(t, b.Calls())
}
