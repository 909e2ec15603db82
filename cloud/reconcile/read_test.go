package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
)

// Row C1: deletes are not retried while one is in flight. One 404 does not confirm
// absence, and neither does an error.
func TestC1OneSpuriousNotFoundIsNotAbsence(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	p.running()
	// The first read, before the delete, finds nothing.
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
			b := newHarness(t, harnessConfig{})
			p := b.proxy(1)
			p.running()
			b.gce.AddFault(f)
			p.delete()
			b.pass(5 * time.Minute)
			got := p.delete()
			assert.NotEqual(t, adapter.StateAbsent, got.State)
			require.NotNil(t, got.Failure)
			assert.NotEqual(t, adapter.FailurePermanent, got.Failure.Class, "deletion never latches")
			assert.Len(t, p.vms(), 1)
			b.gce.ClearFaults()
			p.absent()
		})
	}
}

// The reads that confirm an absence after a refusal may fail. The refusal, which a person
// has to end, stays known.
func TestReadThatFailsKeepsTheRefusalOfTheInsert(t *testing.T) {
	for name, tt := range map[string]struct {
		insert  gcestandin.Fault
		class   adapter.FailureClass
		message string
	}{
		"name taken by a disk": {
			gcestandin.Fault{Op: "insert", Status: 409, Reason: "alreadyExists", Message: "The resource 'disks/x' already exists"},
			adapter.FailureRefused, "delete the resource that the cloud names",
		},
		"latched": {gcestandin.Fault{Op: "insert", OperationError: badValue()}, adapter.FailurePermanent, "e9-pico"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, harnessConfig{timing: realistic()})
			b.gce.AddFault(tt.insert)
			b.gce.AddFault(gcestandin.Fault{Op: "get", Count: 2, Status: 503, Message: "try again"})
			p := b.proxy(1)
			b.drive()
			p.failing(tt.class)
			inserts, shown := b.count("insert"), false
			for range 60 {
				got := p.put()
				require.NotNil(t, got.Failure)
				assert.Equal(t, tt.class, got.Failure.Class)
				assert.Contains(t, got.Failure.Message, tt.message)
				shown = shown || strings.Contains(got.Failure.Message, "cannot be read: ")
				b.pass(time.Second)
			}
			assert.True(t, shown, "the read's failure is known, too")
			assert.NotContains(t, p.put().Failure.Message, "cannot be read", "and ends with a read that works")
			assert.GreaterOrEqual(t, b.count("get"), 4)
			if tt.class == adapter.FailurePermanent {
				assert.Equal(t, inserts, b.count("insert"))
			}
		})
	}
}

// Two absences in lists alone are not enough: lists may be stale.
func TestC1ListsAloneNeverConfirm(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	p.running()
	labels := p.vms()[0].Labels
	hidden := map[string]string{gcp.LabelUID: labels[gcp.LabelUID]}
	require.NoError(t, b.gce.Relabel(zoneB, p.name(), hidden)) // so that lists do not contain it
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

func TestC2DeletionRightAfterTheInsertWasSent(t *testing.T) {
	for delay := range 12 {
		b := newHarness(t, harnessConfig{timing: realistic()})
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

// An accepted insert whose VM no response contains yet: reads and lists confirm
// nothing before its operation has ended.
func TestC2DeletionWhileTheInsertedVMIsNotVisible(t *testing.T) {
	timing := realistic()
	timing.Insert, timing.ListLag = 40*time.Second, 2*time.Minute
	b := newHarness(t, harnessConfig{timing: timing})
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
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	p.put()
	p.delete()
	p.absent()
	assert.Zero(t, b.count("insert"))
}

func TestC2DeletionWhileTheInsertHasNoResponse(t *testing.T) {
	for name, arrived := range map[string]bool{"arrived": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, harnessConfig{timing: realistic()})
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

func TestDeleteWithoutInstanceIsConfirmedByTheNextList(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	b.pass(maxListLag)
	p := b.proxy(1)
	assert.Equal(t, adapter.StateStopping, p.delete().State, "not confirmed yet")
	b.pass(10 * time.Second)
	assert.Equal(t, adapter.StateAbsent, p.delete().State)
	assert.Zero(t, b.count("get"), "and costs no call of its own")
}

// A predecessor may have been killed right after its insert, and lists are stale:
// without a location, an instance that a new reconciler has not observed is not
// absent.
func TestC5UnlistedInstanceIsNotAbsentSoonAfterTheStart(t *testing.T) {
	timing := realistic()
	timing.ListLag = time.Minute
	b := newHarness(t, harnessConfig{timing: timing})
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
func TestC20AllZonesAreReadBeforeAnInsertSoonAfterTheStart(t *testing.T) {
	timing := realistic()
	timing.ListLag = time.Minute
	b := newHarness(t, harnessConfig{timing: timing})
	b.gce.AddFault(stockout(zoneB, 1))
	p := b.proxy(1)
	p.req.Placement.FallbackZones = []v1alpha1.Zone{zoneC}
	b.drive()
	p.put()
	b.until(time.Minute, "an insert", func() bool { return b.count("insert") == 1 })
	assert.Equal(t, 2, b.count("get"), "one look into each zone")
	b.until(time.Minute, "it is in the second zone", func() bool { vms := p.vms(); return len(vms) == 1 && vms[0].Zone == zoneC })
	b.restart()
	got := p.running()
	assert.Equal(t, "zones/europe-west1-c/instances/"+p.name(), got.ProviderID)
	assert.Equal(t, 2, b.count("insert"))

	b.pass(maxListLag)
	b.gce.ForgetCalls()
	fresh := b.proxy(2)
	fresh.req.Placement.FallbackZones = []v1alpha1.Zone{zoneC}
	fresh.put()
	b.drive()
	require.Len(t, b.gce.Calls(), 1, "a reconciler that has run longer than the list lag reads no zone")
	assert.Equal(t, "insert", b.gce.Calls()[0].Op)
}

func TestDeleteReadsTheLastKnownLocation(t *testing.T) {
	b := newHarness(t, harnessConfig{})
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
