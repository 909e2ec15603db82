package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
)

// Row C1: deletes are not repeated while one is in flight, and one 404 is not
// the end, nor is any error.
func TestC1OneSpuriousNotFoundIsNotAbsence(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	p := b.proxy(1)
	p.running()
	// The very first read, that before the delete, finds nothing.
	b.gce.AddFault(gcestandin.Fault{Op: "get", Count: 1, Status: 404, Reason: "notFound"})
	p.delete()
	b.until(5*time.Minute, "Absent", func() bool {
		got := p.delete()
		if len(p.vms()) > 0 {
			assert.NotEqual(t, adapter.StateAbsent, got.State)
		}
		return got.State == adapter.StateAbsent
	})
	assert.Equal(t, 1, b.count("delete"))
}

func TestC1NoErrorIsAbsence(t *testing.T) {
	for name, f := range map[string]gcestandin.Fault{
		"403":     {Op: "get", Status: 403, Reason: "rateLimitExceeded"},
		"denied":  {Op: "get", Status: 403, Reason: "forbidden"},
		"500":     {Op: "get", Status: 500},
		"dropped": {Op: "get", DropAnswer: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, benchConfig{})
			p := b.proxy(1)
			p.running()
			b.gce.AddFault(f)
			p.delete()
			b.pass(5 * time.Minute)
			got := p.delete()
			assert.NotEqual(t, adapter.StateAbsent, got.State)
			require.NotNil(t, got.Failure)
			assert.Equal(t, adapter.FailureTransient, got.Failure.Class, "deletion never latches")
			assert.Len(t, p.vms(), 1)
			b.gce.ClearFaults()
			p.absent()
		})
	}
}

// Two absences of a list alone are not enough: lists lag.
func TestC1ListsAloneNeverConfirm(t *testing.T) {
	b := newBench(t, benchConfig{})
	p := b.proxy(1)
	p.running()
	labels := p.vms()[0].Labels
	hidden := map[string]string{gcp.LabelUID: labels[gcp.LabelUID]}
	require.NoError(t, b.gce.Relabel(zoneB, p.name(), hidden)) // lists show it no longer
	b.gce.AddFault(gcestandin.Fault{Op: "get", Status: 503})
	b.pass(5 * time.Minute)
	assert.Equal(t, adapter.StateRunning, p.put().State, "it keeps its last observation")
	assert.Equal(t, 1, b.count("insert"))
	p.delete()
	b.pass(5 * time.Minute)
	assert.NotEqual(t, adapter.StateAbsent, p.delete().State)
	b.gce.ClearFaults()
	p.absent()
}

// Rows C2 and C5: a Proxy deleted before anybody noted its instance.
func TestC5DeletionWithEmptyStatusFindsTheVMByItsUID(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	p := b.proxy(1)
	p.running()
	b.restart()
	b.drive()
	got := p.delete()
	assert.Equal(t, adapter.StateStopping, got.State)
	p.absent()
}

func TestC2DeletionRightAfterTheInsertWasSent(t *testing.T) {
	for delay := range 12 {
		b := newBench(t, benchConfig{timing: realistic()})
		p := b.proxy(1)
		b.drive()
		p.put()
		b.drive()
		b.pass(time.Duration(delay) * time.Second)
		p.absent()
		b.pass(time.Minute)
		assert.Empty(t, b.gce.VMs())
		assert.Equal(t, 1, b.count("insert"))
	}
}

// An insert that was accepted and whose VM nothing shows yet: neither reads nor
// lists are believed before its operation has ended.
func TestC2DeletionWhileTheAcceptedInsertShowsNowhere(t *testing.T) {
	timing := realistic()
	timing.Insert, timing.ListLag = 40*time.Second, 2*time.Minute
	b := newBench(t, benchConfig{timing: timing})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.drive()
	require.Equal(t, 1, b.count("insert"))
	b.gce.AddFault(gcestandin.Fault{Op: "get", Status: 404, Reason: "notFound"})
	b.gce.ForgetCalls()
	for range 38 {
		assert.NotEqual(t, adapter.StateAbsent, p.delete().State)
		b.pass(time.Second)
	}
	assert.LessOrEqual(t, b.count("get"), 4, "and it is not looked for in a hurry")
	b.gce.ClearFaults()
	p.absent()
}

func TestC2DeletionBeforeTheInsertWasSent(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	p.put()
	p.delete()
	p.absent()
	assert.Zero(t, b.count("insert"))
}

func TestC2DeletionWhileTheInsertsOutcomeIsUnknown(t *testing.T) {
	for name, arrived := range map[string]bool{"arrived": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, benchConfig{timing: realistic()})
			b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropAnswer: arrived, DropRequest: !arrived})
			p := b.proxy(1)
			b.drive()
			p.put()
			b.drive()
			p.absent()
			assert.Equal(t, 1, b.count("insert"), "a deleted Proxy's insert is not repeated")
		})
	}
}

// Row C6: deletion wins over a replacement in progress, at each of its moments.
func TestC6DeletionDuringReplacement(t *testing.T) {
	for delay := range 60 {
		b := newBench(t, benchConfig{timing: realistic()})
		p := b.proxy(1)
		p.req.Replace = p.running().InstanceID
		p.put()
		for range delay {
			b.pass(time.Second)
			p.put()
		}
		p.absent()
		b.pass(time.Minute)
		assert.Empty(t, b.gce.VMs())
	}
}

// Row C16 and section 3.14: a protected VM is reported and tried again, for ever.
func TestDeletionProtectionOfSection314IsReportedAndNeverLatches(t *testing.T) {
	b := newBench(t, benchConfig{})
	p := b.proxy(1)
	p.running()
	require.NoError(t, b.gce.Protect(zoneB, p.name(), true))
	p.delete()
	for range 10 {
		b.pass(time.Minute)
		got := p.delete()
		require.NotNil(t, got.Failure)
		assert.Contains(t, got.Failure.Message, "protected against deletion")
	}
	n := b.count("delete")
	assert.GreaterOrEqual(t, n, 8)
	assert.LessOrEqual(t, n, 12)
	require.NoError(t, b.gce.Protect(zoneB, p.name(), false))
	p.absent()
}

// Row C15: without permission a deletion waits, says which permission is missing,
// and is never taken for done, though nobody would know whether the VM is there.
func TestC15DeletionWithoutPermissionWaitsAndSaysWhich(t *testing.T) {
	for _, op := range []string{"get", "delete"} {
		b := newBench(t, benchConfig{})
		p := b.proxy(1)
		p.running()
		b.gce.AddFault(gcestandin.Fault{Op: op, Status: 403, Reason: "forbidden", Message: "Required 'compute.instances." + op + "' permission"})
		p.delete()
		for range 10 {
			b.pass(time.Minute)
			got := p.delete()
			require.Equal(t, adapter.StateStopping, got.State)
			require.NotNil(t, got.Failure)
			assert.Contains(t, got.Failure.Message, "compute.instances."+op)
			assert.Equal(t, adapter.FailureTransient, got.Failure.Class, "deletion never latches")
		}
		require.Len(t, p.vms(), 1)
		b.gce.ClearFaults()
		p.absent()
	}
}

// Row C19: an operation that never ends must not hold up the deletion.
func TestC19DeletionGoesPastAnOperationThatNeverEnds(t *testing.T) {
	for _, op := range []string{"insert", "delete"} {
		b := newBench(t, benchConfig{timing: realistic()})
		b.gce.AddFault(gcestandin.Fault{Op: op, OperationNeverEnds: true})
		p := b.proxy(1)
		p.running() // it runs although its insert never ends
		start := b.clock.Now()
		p.absent()
		assert.Less(t, b.clock.Since(start), 90*time.Second, op)
	}
}

func TestOperationThatIsForgottenIsDecidedByTheInstance(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.drive()
	b.gce.ForgetOperations()
	p.running()
	p.delete()
	b.drive()
	b.gce.ForgetOperations()
	p.absent()
	assert.Equal(t, 1, b.count("insert"))
	assert.Equal(t, 1, b.count("delete"))
}

func TestDeleteOperationThatFailsIsTriedAgain(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "delete", Count: 2, OperationError: &gcestandin.OperationError{Code: "INTERNAL_ERROR", Message: "try again"}})
	p := b.proxy(1)
	p.running()
	p.absent()
	assert.Equal(t, 3, b.count("delete"))
}

func TestDeleteWithoutAnswerIsRepeatedWithItsRequestID(t *testing.T) {
	for name, arrived := range map[string]bool{"arrived": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			timing := realistic()
			b := newBench(t, benchConfig{timing: timing})
			b.gce.AddFault(gcestandin.Fault{Op: "delete", Count: 1, DropAnswer: arrived, DropRequest: !arrived})
			p := b.proxy(1)
			p.running()
			p.absent()
			var ids []string
			for _, c := range b.gce.Calls() {
				if c.Op == "delete" {
					ids = append(ids, c.RequestID)
				}
			}
			if arrived {
				assert.Len(t, ids, 1, "the VM is STOPPING, so that it did arrive")
			} else {
				assert.Len(t, slices.Compact(ids), 1, "one decision, one id")
			}
		})
	}
}

// Before a delete the instance is read anew: what is deleted is what was
// decided about.
func TestDeleteIsPrecededByARead(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	p := b.proxy(1)
	p.running()
	b.gce.ForgetCalls()
	p.absent()
	calls := b.gce.Calls()
	i := slices.IndexFunc(calls, func(c gcestandin.Call) bool { return c.Op == "delete" })
	require.Positive(t, i)
	assert.Equal(t, "get", calls[i-1].Op)
	assert.Equal(t, calls[i].Name, calls[i-1].Name)
}

func TestInstanceThatChangedHandsIsNotDeleted(t *testing.T) {
	b := newBench(t, benchConfig{})
	p := b.proxy(1)
	p.running()
	b.clock.Step(time.Second) // so that the next list is not due yet
	require.NoError(t, b.gce.Relabel(zoneB, p.name(), map[string]string{gcp.LabelUID: "somebody-else"}))
	b.until(5*time.Minute, "Absent", func() bool { return p.delete().State == adapter.StateAbsent })
	assert.Len(t, b.gce.VMs(), 1)
	assert.Zero(t, b.count("delete"))
}

func TestReplacedByNameOnlyIsNotWhatWasDecidedAbout(t *testing.T) {
	b := newBench(t, benchConfig{})
	p := b.proxy(1)
	old := p.running()
	// The VM is deleted and made again by hand, within one list interval.
	vm := p.vms()[0].Resource
	require.NoError(t, b.gce.Remove(zoneB, p.name()))
	vm.Id, vm.Zone, vm.SelfLink = nil, nil, nil
	id, err := b.gce.Add(zoneB, vm)
	require.NoError(t, err)
	p.req.Replace = old.InstanceID
	p.put()
	b.pass(time.Minute)
	assert.Equal(t, id, p.put().InstanceID, "the id to replace is gone; this one was never named")
	assert.Zero(t, b.count("delete"))
}

func TestDeleteOfWhatNeverWasIsConfirmedByTheNextList(t *testing.T) {
	b := newBench(t, benchConfig{})
	b.pass(lagPatience)
	p := b.proxy(1)
	assert.Equal(t, adapter.StateStopping, p.delete().State, "not confirmed yet")
	b.pass(10 * time.Second)
	assert.Equal(t, adapter.StateAbsent, p.delete().State)
	assert.Zero(t, b.count("get"), "and costs no call of its own")
}

// A predecessor may have been killed right after its insert, and lists lag: what
// a young engine has not seen, and nobody says where it might be, is not absent.
func TestC5YoungEngineDoesNotTakeForAbsentWhatListsDoNotShowYet(t *testing.T) {
	timing := realistic()
	timing.ListLag = time.Minute
	b := newBench(t, benchConfig{timing: timing})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.drive()
	require.Len(t, p.vms(), 1)
	b.restart()
	b.drive()
	for range 50 {
		require.NotEqual(t, adapter.StateAbsent, p.delete().State)
		b.pass(time.Second)
	}
	p.absent()
}

// The same for an insert: the VM may be in any of the Proxy's zones.
func TestC20YoungEngineLooksIntoAllZonesBeforeAnInsert(t *testing.T) {
	timing := realistic()
	timing.ListLag = time.Minute
	b := newBench(t, benchConfig{timing: timing})
	b.gce.AddFault(stockout(zoneB, 1))
	p := b.proxy(1)
	p.req.Placement.FallbackZones = []v1alpha1.Zone{zoneC}
	b.drive()
	p.put()
	b.until(time.Minute, "it is in the second zone", func() bool { vms := p.vms(); return len(vms) == 1 && vms[0].Zone == zoneC })
	b.restart()
	got := p.running()
	assert.Equal(t, "zones/europe-west1-c/instances/"+p.name(), got.ProviderID)
	assert.Equal(t, 2, b.count("insert"))

	b.pass(lagPatience)
	b.gce.ForgetCalls()
	fresh := b.proxy(2)
	fresh.req.Placement.FallbackZones = []v1alpha1.Zone{zoneC}
	fresh.put()
	b.drive()
	require.Len(t, b.gce.Calls(), 1, "an engine that has been at work for a while does not look")
	assert.Equal(t, "insert", b.gce.Calls()[0].Op)
}

func TestDeleteLooksWhereTheCallerLastKnewItToBe(t *testing.T) {
	b := newBench(t, benchConfig{})
	b.drive()
	p := b.proxy(1)
	id := "zones/" + zoneD + "/instances/" + p.name()
	_, err := p.tryDelete(id)
	require.NoError(t, err)
	b.until(5*time.Minute, "Absent", func() bool {
		got, err := p.tryDelete(id)
		return err == nil && got.State == adapter.StateAbsent
	})
	require.NotEmpty(t, b.count("get"))
	for _, c := range b.gce.Calls() {
		if c.Op == "get" {
			assert.Equal(t, zoneD, c.Zone)
		}
	}
}

// An instance that shows up after its deletion was confirmed is deleted again.
func TestLateInstanceOfADeletedProxyIsDeleted(t *testing.T) {
	b := newBench(t, benchConfig{})
	p := b.proxy(1)
	p.running()
	vm := p.vms()[0].Resource
	p.absent()
	vm.Id, vm.Zone, vm.SelfLink = nil, nil, nil
	_, err := b.gce.Add(zoneB, vm)
	require.NoError(t, err)
	b.pass(11 * time.Second)
	p.absent()
}
