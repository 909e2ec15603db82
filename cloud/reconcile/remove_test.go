package reconcile

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
)

// Rows C2 and C5: a Proxy deleted before its status had an instance.
func TestC5DeletionWithEmptyStatusFindsTheVMByItsUID(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	p.running()
	b.restart()
	b.drive()
	got := p.delete()
	assert.Equal(t, adapter.StateStopping, got.State)
	p.absent()
}

// Row C6: deletion takes precedence over a replacement in progress, at each of its
// moments.
func TestC6DeletionDuringReplacement(t *testing.T) {
	for delay := range 60 {
		b := newHarness(t, harnessConfig{timing: realistic()})
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

// Row C16 and section 3.14: the deletion of a protected VM is reported and retried for
// ever.
func TestDeletionProtectionIsRetriedForEver(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	p.running()
	require.NoError(t, b.gce.Protect(zoneB, p.name(), true))
	p.delete()
	for range 6 {
		b.keepDeleting(p, time.Hour)
		got := p.delete()
		require.NotNil(t, got.Failure)
		assert.Contains(t, got.Failure.Message, "protected against deletion")
	}
	n := b.count("delete")
	assert.GreaterOrEqual(t, n, 14)
	assert.LessOrEqual(t, n, 20, "after 1, 2, 4, ... 30 minutes")
	require.NoError(t, b.gce.Protect(zoneB, p.name(), false))
	b.keepDeleting(p, 31*time.Minute)
	assert.Equal(t, adapter.StateAbsent, p.delete().State)
}

// A delete that is accepted and fails in its operation is one that fails.
func TestDeleteWhoseOperationFailsBacksOff(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	p.running()
	b.gce.AddFault(gcestandin.Fault{Op: "delete", OperationError: &gcestandin.OperationError{Code: "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", Message: "in use"}})
	b.keepDeleting(p, time.Hour)
	assert.LessOrEqual(t, b.count("delete"), 22, "in an hour")
	assert.Contains(t, p.delete().Failure.Message, "in use")
	b.gce.ClearFaults()
	b.keepDeleting(p, 10*time.Minute)
	assert.Equal(t, adapter.StateAbsent, p.delete().State)
}

// An instance that is gone leaves no backoff of its delete to its successor.
func TestBackoffOfADeleteEndsWithTheInstance(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	old := p.running()
	b.gce.AddFault(gcestandin.Fault{Op: "delete", Status: 403, Reason: "forbidden", Message: "no"})
	p.req.Replace = old.InstanceID
	b.keepPutting(p, 2*time.Hour)
	require.NoError(t, b.gce.Remove(zoneB, p.name()))
	b.until(2*time.Minute, "another one", func() bool {
		got := p.put()
		return got.State == adapter.StateRunning && got.InstanceID != old.InstanceID
	})
}

// keepDeleting is the hook's resync while a Proxy is being deleted.
func (b *harness) keepDeleting(p *hookProxy, d time.Duration) {
	b.t.Helper()
	for range d / (20 * time.Second) {
		p.delete()
		b.drive()
		b.clock.Step(20 * time.Second)
		b.drive()
	}
}

// Row C15: without permission a deletion is retried, names the missing permission, and
// is never reported as done.
func TestC15DeletionWithoutPermissionIsRetriedAndNamesIt(t *testing.T) {
	for _, op := range []string{"get", "delete"} {
		b := newHarness(t, harnessConfig{})
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
			assert.Equal(t, adapter.FailureRefused, got.Failure.Class, "deletion never latches")
		}
		require.Len(t, p.vms(), 1)
		b.gce.ClearFaults()
		p.absent()
	}
}

// Row C19: an operation that never ends must not block the deletion.
func TestC19DeletionDuringAnOperationThatNeverEnds(t *testing.T) {
	for _, op := range []string{"insert", "delete"} {
		b := newHarness(t, harnessConfig{timing: realistic()})
		b.gce.AddFault(gcestandin.Fault{Op: op, OperationNeverEnds: true})
		p := b.proxy(1)
		p.running() // it runs although its insert never ends
		start := b.clock.Now()
		p.absent()
		assert.Less(t, b.clock.Since(start), 90*time.Second, op)
	}
}

// It must not block the next instance either: a replacement, or the successor of a
// lost instance.
func TestNextInstanceAfterAnInsertThatNeverEnds(t *testing.T) {
	ends := map[string]func(b *harness, p *hookProxy, first adapter.Instance){
		"replaced": func(_ *harness, p *hookProxy, first adapter.Instance) {
			p.req.Replace, p.req.SpecHash, p.req.Generation = first.InstanceID, "v1-bb", 2
		},
		"taken away": func(b *harness, p *hookProxy, _ adapter.Instance) { b.remove(p) },
		"taken away, and the spec edited": func(b *harness, p *hookProxy, _ adapter.Instance) {
			b.remove(p)
			p.req.SpecHash, p.req.Generation = "v1-bb", 2
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, harnessConfig{timing: realistic()})
			b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, OperationNeverEnds: true})
			p := b.proxy(1)
			first := p.running()
			end(b, p, first)
			b.until(3*time.Minute, "another one", func() bool {
				got, err := p.tryPut()
				return err == nil && got.State == adapter.StateRunning && got.InstanceID != first.InstanceID
			})
			assert.Len(t, p.vms(), 1)
		})
	}
}

func TestLostOperationIsReplacedByARead(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
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

func TestFailedDeleteOperationIsRetried(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "delete", Count: 2, OperationError: &gcestandin.OperationError{Code: "INTERNAL_ERROR", Message: "try again"}})
	p := b.proxy(1)
	p.running()
	p.absent()
	assert.Equal(t, 3, b.count("delete"))
}

func TestDeleteWithoutResponseIsRetriedWithItsRequestID(t *testing.T) {
	for name, arrived := range map[string]bool{"arrived": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			timing := realistic()
			b := newHarness(t, harnessConfig{timing: timing})
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

// Before a delete the instance is read, so that only the decided one is deleted.
func TestDeleteIsPrecededByARead(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
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

func TestInstanceWithAnotherUIDIsNotDeleted(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	p.running()
	b.clock.Step(time.Second) // before the next list
	require.NoError(t, b.gce.Relabel(zoneB, p.name(), map[string]string{gcp.LabelUID: "somebody-else"}))
	b.until(5*time.Minute, "Absent", func() bool { return p.delete().State == adapter.StateAbsent })
	assert.Len(t, b.gce.VMs(), 1)
	assert.Zero(t, b.count("delete"))
}

func TestInstanceWithAnotherIDIsNotReplaced(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	old := p.running()
	// A user deletes the VM and makes it again, within one list interval.
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

// An instance that appears after its deletion was confirmed is deleted again.
func TestLateInstanceOfADeletedProxyIsDeleted(t *testing.T) {
	b := newHarness(t, harnessConfig{})
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
