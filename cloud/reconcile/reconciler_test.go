package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

func TestInstanceFromInsertToDelete(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	_, err := p.tryPut()
	require.ErrorIs(t, err, adapter.ErrNotReady, "nothing is known before the first list")

	b.drive()
	assert.Equal(t, adapter.Instance{State: adapter.StateAbsent, Action: adapter.ActionInserting}, p.put(), "answered before any call")
	b.drive()
	got := p.put()
	assert.Equal(t, adapter.StateProvisioning, got.State)
	assert.Equal(t, adapter.ActionInserting, got.Action)

	got = p.running()
	vm := p.vms()[0]
	assert.Equal(t, adapter.ActionNone, got.Action)
	assert.Equal(t, "zones/europe-west1-b/instances/"+p.name(), got.ProviderID)
	assert.Equal(t, vm.ID, got.InstanceID)
	assert.Equal(t, vm.IP, got.IP)
	assert.Equal(t, "v1-aa", got.SpecHash)
	assert.Equal(t, int32(3128), got.Port)
	assert.True(t, got.CreatedAt.Equal(vm.Created))
	assert.Nil(t, got.Failure)

	first := p.delete()
	assert.Equal(t, adapter.StateStopping, first.State, "on its way out, no longer for use")
	assert.Equal(t, adapter.ActionDeleting, first.Action)
	p.absent()
	assert.Equal(t, 1, b.count("insert"))
	assert.Equal(t, 1, b.count("delete"))
}

func TestRunningWithoutAddressIsProvisioning(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.until(time.Minute, "RUNNING", func() bool { return len(p.vms()) == 1 && p.vms()[0].Status == "RUNNING" })
	b.pass(time.Second)
	assert.Equal(t, adapter.StateProvisioning, p.put().State)
	assert.Empty(t, p.put().IP)
}

// Section 3.10: addresses change, so that each list updates them.
func TestAddressIsUpdatedByLists(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	p.running()
	require.NoError(t, b.gce.Readdress(zoneB, p.name(), "198.51.100.7"))
	b.pass(10 * time.Second)
	assert.Equal(t, "198.51.100.7", p.put().IP)
}

func TestReplaceDeletesThenInserts(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	old := p.running()
	p.req.SpecHash, p.req.Generation = "v1-bb", 2
	got := p.running()
	assert.Equal(t, old.InstanceID, got.InstanceID, "another hash alone replaces nothing: that is the hook's decision")
	assert.Equal(t, "v1-aa", got.SpecHash)

	p.req.Replace = old.InstanceID
	b.until(10*time.Minute, "the new instance runs", func() bool {
		got = p.put()
		if got.InstanceID == old.InstanceID {
			assert.Equal(t, adapter.ActionDeleting, got.Action)
		}
		return got.State == adapter.StateRunning && got.InstanceID != old.InstanceID
	})
	assert.Equal(t, "v1-bb", got.SpecHash)
	assert.Equal(t, 2, b.count("insert"))
	assert.Equal(t, map[string]int{"new": 1, "replaced": 1}, b.made.counts)
}

func TestReplaceOfAnotherInstanceKeepsThisOne(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	got := p.running()
	p.req.Replace = "12345"
	b.pass(time.Minute)
	assert.Equal(t, got.InstanceID, p.put().InstanceID)
	assert.Zero(t, b.count("delete"))
}

func TestStoppedInstanceIsReplaced(t *testing.T) {
	for _, status := range []string{"STOPPED", "TERMINATED", "SUSPENDED"} {
		b := newHarness(t, harnessConfig{timing: realistic()})
		p := b.proxy(1)
		old := p.running()
		require.NoError(t, b.gce.SetStatus(zoneB, p.name(), status))
		b.until(10*time.Minute, "a new instance runs", func() bool {
			got := p.put()
			return got.State == adapter.StateRunning && got.InstanceID != old.InstanceID
		})
	}
}

// Unknown statuses never mean absent: no mutation follows.
func TestUnknownAndPassingStatusesAreKept(t *testing.T) {
	for status, want := range map[string]adapter.State{
		"HIBERNATING": adapter.StateProvisioning, "REPAIRING": adapter.StateProvisioning, "PENDING": adapter.StateProvisioning,
		"PENDING_STOP": adapter.StateStopping, "STOPPING": adapter.StateStopping, "SUSPENDING": adapter.StateStopping, "DEPROVISIONING": adapter.StateStopping,
	} {
		b := newHarness(t, harnessConfig{})
		p := b.proxy(1)
		old := p.running()
		require.NoError(t, b.gce.SetStatus(zoneB, p.name(), status))
		b.pass(2 * time.Minute)
		got := p.put()
		assert.Equal(t, want, got.State, status)
		assert.Equal(t, old.InstanceID, got.InstanceID, status)
		assert.Zero(t, b.count("delete"), status)
		assert.Equal(t, 1, b.count("insert"), status)
	}
}

// Row C12: an instance that a user deleted is made again, with its old name and
// another id.
func TestC12InstanceDeletedByAUserIsMadeAgain(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	old := p.running()
	require.NoError(t, b.gce.Remove(zoneB, p.name()))
	b.until(5*time.Minute, "a new instance runs", func() bool {
		got := p.put()
		return got.State == adapter.StateRunning && got.InstanceID != old.InstanceID
	})
	assert.Equal(t, old.ProviderID, p.put().ProviderID)
	assert.Equal(t, map[string]int{"new": 1, "lost": 1}, b.made.counts)
}

// Row D6: a preempted Spot VM is deleted by Compute and its name becomes free; a plain
// one stays TERMINATED and has to be deleted. Deleting an instance that vanished
// meanwhile succeeds.
func TestD6PreemptedInstanceIsMadeAgain(t *testing.T) {
	for _, spot := range []bool{true, false} {
		b := newHarness(t, harnessConfig{timing: realistic()})
		p := b.proxy(1)
		p.req.Placement.Spot = spot
		old := p.running()
		require.NoError(t, b.gce.Preempt(zoneB, p.name()))
		b.until(5*time.Minute, "no longer Running", func() bool { return p.put().State != adapter.StateRunning })
		b.until(5*time.Minute, "a new instance runs", func() bool {
			got := p.put()
			return got.State == adapter.StateRunning && got.InstanceID != old.InstanceID
		})
		assert.Equal(t, spot, b.count("delete") == 0)
	}
}

func TestD6DeleteOfAVanishedInstanceSucceeds(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	p.running()
	require.NoError(t, b.gce.Remove(zoneB, p.name()))
	p.absent()
	assert.Zero(t, b.count("delete"), "the read before it found nothing")
}

func TestInstanceOfAPredecessorIsAdopted(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	old := p.running()
	b.restart()
	b.drive()
	assert.Equal(t, old, p.put())
	b.pass(time.Minute)
	assert.Equal(t, 1, b.count("insert"))
}
