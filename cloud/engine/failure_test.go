package engine

import (
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
)

func stockout(zone string, count int) gcestandin.Fault {
	return gcestandin.Fault{Op: "insert", Zone: zone, Count: count, OperationError: &gcestandin.OperationError{
		Code: "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", Message: "no e2-micro left",
	}}
}

// failing puts until a failure of that class shows and returns the answer.
func (p *px) failing(class adapter.FailureClass) adapter.Instance {
	p.b.t.Helper()
	var got adapter.Instance
	p.b.until(5*time.Minute, "failure "+string(class), func() bool {
		var err error
		got, err = p.tryPut()
		return err == nil && got.Failure != nil && got.Failure.Class == class
	})
	return got
}

// Rows D1 and D4: the insert succeeds, and only its operation says that there
// will be no instance.
func TestD1StockoutShowsFromTheOperationAndWaits(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	b.gce.AddFault(stockout("", 2))
	p := b.proxy(1)
	b.drive()
	got := p.failing(adapter.FailureStockout)
	assert.Contains(t, got.Failure.Message, "no e2-micro left")
	b.until(time.Minute, "the zombie is gone and the wait shows", func() bool {
		got = p.put()
		return got.State == adapter.StateAbsent && got.Action == adapter.ActionNone && got.Failure.RetryAfterSeconds > 60
	})
	inserts := b.count("insert")
	b.pass(time.Minute)
	assert.Equal(t, inserts, b.count("insert"), "no hot loop")
	b.until(10*time.Minute, "Running", func() bool { got = p.put(); return got.State == adapter.StateRunning })
	assert.Nil(t, got.Failure)
	assert.Equal(t, 3, b.count("insert"), "each attempt with a back-off in between")
}

// Row D2: fallback zones in their order, with a memory per zone.
func TestD2StockoutFallsBackToTheNextZoneAndRemembers(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	b.gce.AddFault(stockout(zoneB, 0))
	b.gce.AddFault(stockout(zoneC, 0))
	p := b.proxy(1)
	p.req.Placement.FallbackZones = []v1alpha1.Zone{zoneC, zoneU}
	got := p.running()
	assert.Equal(t, "zones/us-central1-a/instances/"+p.name(), got.ProviderID, "the id names the zone")
	assert.Equal(t, []string{zoneB, zoneC, zoneU}, b.insertZones())

	other := b.proxy(2)
	other.req.Placement.FallbackZones = []v1alpha1.Zone{zoneU}
	other.running()
	assert.Equal(t, []string{zoneB, zoneC, zoneU, zoneU}, b.insertZones(), "the second Proxy does not find out anew")

	bigger := b.proxy(3)
	bigger.req.Placement.MachineType = "e2-small"
	b.gce.ClearFaults()
	bigger.running()
	assert.Equal(t, zoneB, b.insertZones()[4], "the shortage is one of a machine type")

	b.pass(time.Minute)
	assert.Equal(t, zoneU, p.vms()[0].Zone, "it stays where it is")
}

func (b *bench) insertZones() []string {
	var out []string
	for _, c := range b.gce.Calls() {
		if c.Op == "insert" {
			out = append(out, c.Zone)
		}
	}
	return out
}

func TestAfterAShortageOneInsertTriesForAll(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	b.gce.AddFault(stockout(zoneB, 0))
	ps := []*px{b.proxy(1), b.proxy(2), b.proxy(3), b.proxy(4)}
	b.drive()
	putAll := func() {
		for _, p := range ps {
			p.put()
		}
	}
	putAll()
	b.pass(30 * time.Second)
	require.Equal(t, 4, b.count("insert"), "nobody knew")
	var tried []int // inserts in each minute after that
	for range 12 {
		before := b.count("insert")
		putAll()
		b.pass(time.Minute)
		tried = append(tried, b.count("insert")-before)
	}
	assert.Equal(t, []int{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, tried, "one after two minutes, one four minutes later, then after eight")
	b.gce.ClearFaults()
	for _, p := range ps {
		b.until(40*time.Minute, "Running", func() bool { putAll(); return p.put().State == adapter.StateRunning })
	}
}

// Row D5: quotas wait long, name the quota, and are not evaded by going to
// another zone.
func TestD5QuotaWaitsAndNamesTheQuota(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, OperationError: &gcestandin.OperationError{
		Code: "QUOTA_EXCEEDED", Message: "Quota 'IN_USE_ADDRESSES' exceeded.", HTTPStatus: 403,
		QuotaMetric: "compute.googleapis.com/in_use_addresses", QuotaLimit: 8,
	}})
	p := b.proxy(1)
	p.req.Placement.FallbackZones = []v1alpha1.Zone{zoneC}
	b.drive()
	got := p.failing(adapter.FailureQuotaExceeded)
	assert.Contains(t, got.Failure.Message, "compute.googleapis.com/in_use_addresses, limit 8")
	assert.InDelta(t, 300, got.Failure.RetryAfterSeconds, 5)
	p.put()
	b.pass(4 * time.Minute)
	assert.Equal(t, 1, b.count("insert"))
	p.running()
	assert.Equal(t, []string{zoneB, zoneB}, b.insertZones())
}

func TestQuotaOfTheCallItselfWaitsToo(t *testing.T) {
	b := newBench(t, benchConfig{})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, Status: 403, Reason: "quotaExceeded", Message: "Quota 'CPUS' exceeded. Limit: 24.0"})
	p := b.proxy(1)
	b.drive()
	p.failing(adapter.FailureQuotaExceeded)
	assert.Equal(t, adapter.StateAbsent, p.put().State, "the call was refused: nothing is there")
	b.pass(time.Minute)
	assert.Equal(t, 1, b.count("insert"))
	b.pass(4 * time.Minute)
	p.running()
}

// Row C22: a missing image is permanent and no retry storm.
func TestC22MissingImageLatchesUntilTheSpecChanges(t *testing.T) {
	b := newBench(t, benchConfig{images: []string{"global/images/squid-2"}})
	p := b.proxy(1)
	b.drive()
	got := p.failing(adapter.FailurePermanent)
	assert.Contains(t, got.Failure.Message, "squid-1")
	assert.Zero(t, got.Failure.RetryAfterSeconds)
	b.pass(10 * time.Minute)
	p.put()
	b.pass(10 * time.Minute)
	assert.Equal(t, 1, b.count("insert"))

	p.req.Placement.Image, p.req.SpecHash = "squid-2", "v1-bb"
	p.running()
}

func TestPermanentFailureOfAnOperationLatches(t *testing.T) {
	for _, code := range []string{"PERMISSIONS_ERROR", "INVALID_FIELD_VALUE", "RESOURCE_NOT_FOUND"} {
		b := newBench(t, benchConfig{timing: realistic()})
		b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, OperationError: &gcestandin.OperationError{Code: code}})
		p := b.proxy(1)
		b.drive()
		p.failing(adapter.FailurePermanent)
		b.pass(14 * time.Minute)
		assert.Equal(t, 1, b.count("insert"), code)
		p.req.Generation++ // the same hash: somebody asked for another attempt
		p.running()
	}
}

func TestPermanentFailureOfAnOutdatedRequestIsNotHeldAgainstTheNewOne(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, OperationError: &gcestandin.OperationError{Code: "INVALID_FIELD_VALUE"}})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.pass(time.Second)
	p.req.SpecHash, p.req.Generation = "v1-bb", 2
	p.put()
	p.running()
	assert.Equal(t, 2, b.count("insert"))
}

func TestMissingPlacementIsNamedAndMakesNoCall(t *testing.T) {
	b := newBench(t, benchConfig{})
	p := b.proxy(1)
	p.req.Placement = v1alpha1.Placement{}
	b.drive()
	got := p.failing(adapter.FailurePermanent)
	for _, field := range []string{"placement.zone", "placement.machineType", "placement.image"} {
		assert.Contains(t, got.Failure.Message, field)
	}
	assert.Zero(t, b.count("insert"))
}

// Section 3.15: 403 rateLimitExceeded means fewer calls, for all of the account.
func TestRateLimitOfSection315PausesTheAccount(t *testing.T) {
	b := newBench(t, benchConfig{})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, Status: 403, Reason: "rateLimitExceeded", Message: "Rate Limit Exceeded"})
	p := b.proxy(1)
	b.drive()
	got := p.failing(adapter.FailureTransient)
	assert.Positive(t, got.Failure.RetryAfterSeconds)
	other := b.proxy(2)
	other.put()
	b.pass(10 * time.Second)
	assert.Equal(t, 1, b.count("insert"), "others wait as well")
	b.pass(10 * time.Second)
	assert.Equal(t, 3, b.count("insert"))
	p.running()
	other.running()
}

func TestRateLimitedListBacksOff(t *testing.T) {
	b := newBench(t, benchConfig{})
	b.gce.AddFault(gcestandin.Fault{Op: "list", Count: 1, Status: 403, Reason: "rateLimitExceeded"})
	b.pass(29 * time.Second)
	assert.Equal(t, 1, b.count("list"))
	_, err := b.proxy(1).tryPut()
	require.ErrorIs(t, err, adapter.ErrNotReady)
	assert.ErrorContains(t, err, "rateLimitExceeded", "people can see why")
	b.pass(time.Second)
	assert.Equal(t, 2, b.count("list"))
}

func TestTransientFailuresBackOff(t *testing.T) {
	b := newBench(t, benchConfig{})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 4, Status: 409, Reason: "resourceInUse"})
	p := b.proxy(1)
	b.drive()
	p.failing(adapter.FailureTransient)
	var at []time.Duration
	p.running()
	var last time.Time
	for _, c := range b.gce.Calls() {
		if c.Op == "insert" {
			if !last.IsZero() {
				at = append(at, c.At.Sub(last))
			}
			last = c.At
		}
	}
	assert.Equal(t, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}, at)
}

// Row C13: the old name is taken while the old VM is being deleted. That is
// waited for, and is no shortage.
func TestC13NameOfADyingVMIsWaitedFor(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	// A VM of ours that no list shows, because it lost its installation label.
	b.foreign(p, map[string]string{gcp.LabelUID: p.req.UID})
	b.remove(p)
	p.put()
	b.pass(5 * time.Second)
	got := p.put()
	assert.Equal(t, adapter.StateStopping, got.State)
	assert.Nil(t, got.Failure)
	got = p.running()
	assert.Equal(t, "v1-aa", got.SpecHash)
	assert.Equal(t, 2, b.count("insert"))
}

// Row C14: a name that somebody else's VM has is never adopted.
func TestC14ForeignVMOfOurNameIsNeitherAdoptedNorDeleted(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"no labels":      nil,
		"another's UID":  {gcp.LabelUID: "11111111-0000-4000-8000-000000000000"},
		"another's all":  {gcp.LabelUID: "11111111-0000-4000-8000-000000000000", gcp.LabelInstallation: "inst"},
		"our hash alone": {gcp.LabelSpecHash: "v1-aa"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, benchConfig{})
			p := b.proxy(1)
			b.foreign(p, labels)
			b.drive()
			got := p.failing(adapter.FailurePermanent)
			assert.Contains(t, got.Failure.Message, "is taken by an instance")
			assert.Empty(t, got.InstanceID)
			b.pass(5 * time.Minute)
			assert.Equal(t, 1, b.count("insert"))

			b.until(5*time.Minute, "Absent", func() bool { return p.delete().State == adapter.StateAbsent })
			assert.Len(t, b.gce.VMs(), 1, "still there")
			assert.Zero(t, b.count("delete"))
		})
	}
}

// foreign adds a VM of p's name with these labels.
func (b *bench) foreign(p *px, labels map[string]string) {
	b.t.Helper()
	_, err := b.gce.Add(zoneB, &computepb.Instance{
		Name: ptr.To(p.name()), MachineType: ptr.To("zones/z/machineTypes/m"), Labels: labels,
		Disks:             []*computepb.AttachedDisk{{Boot: ptr.To(true), InitializeParams: &computepb.AttachedDiskInitializeParams{SourceImage: ptr.To("i")}}},
		NetworkInterfaces: []*computepb.NetworkInterface{{}},
	})
	require.NoError(b.t, err)
}

// remove deletes p's VM as somebody with a console might: it takes its time.
func (b *bench) remove(p *px) {
	b.t.Helper()
	ref, err := b.cloud.ParseProviderID("zones/" + zoneB + "/instances/" + p.name())
	require.NoError(b.t, err)
	_, err = b.cloud.Delete(b.t.Context(), ref, "11111111-1111-4111-8111-111111111111")
	require.NoError(b.t, err)
}

// Row C11: an instance that is lost over and over is not made over and over.
func TestC11LossesBackOff(t *testing.T) {
	b := newBench(t, benchConfig{})
	p := b.proxy(1)
	p.running()
	for range 60 * 10 {
		b.pass(6 * time.Second)
		got := p.put()
		if got.State == adapter.StateRunning {
			_ = b.gce.Remove(zoneB, p.name()) // gone already when no list has shown it yet
		}
	}
	assert.LessOrEqual(t, b.count("insert"), 9, "in an hour")
	got := p.put()
	require.NotNil(t, got.Failure)
	assert.Contains(t, got.Failure.Message, "lost")
	assert.Positive(t, got.Failure.RetryAfterSeconds)
}

func TestC11AReplacementThatWasAskedForIsNotHeldBack(t *testing.T) {
	b := newBench(t, benchConfig{})
	p := b.proxy(1)
	for range 5 {
		old := p.running()
		p.req.Replace = old.InstanceID
		b.until(time.Minute, "replaced", func() bool {
			got := p.put()
			return got.State == adapter.StateRunning && got.InstanceID != old.InstanceID
		})
	}
	assert.Equal(t, 5, b.made.counts["replaced"])
}

// Row C20: a list that lags must not make the engine insert again and again,
// and a cap bounds the damage of anything else.
func TestC20LaggingListMakesNoSecondInstance(t *testing.T) {
	timing := realistic()
	timing.ListLag = time.Minute
	b := newBench(t, benchConfig{timing: timing})
	p := b.proxy(1)
	p.running()
	b.pass(3 * time.Minute)
	assert.Equal(t, adapter.StateRunning, p.put().State)
	assert.Equal(t, 1, b.count("insert"))
	p.absent()
}

func TestC20CapOfTheAccountHolds(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic(), gcp: gcp.Config{MaxInstances: 2}})
	ps := []*px{b.proxy(1), b.proxy(2), b.proxy(3)}
	b.drive()
	for _, p := range ps {
		p.put()
	}
	b.pass(time.Minute)
	assert.Len(t, b.gce.VMs(), 2)
	var waiting, running *px
	for _, p := range ps {
		if got := p.put(); got.State == adapter.StateRunning {
			running = p
		} else {
			waiting = p
			require.NotNil(t, got.Failure)
			assert.Equal(t, adapter.FailureQuotaExceeded, got.Failure.Class)
			assert.Contains(t, got.Failure.Message, "maxInstances of the provider config is 2")
		}
	}
	running.absent()
	waiting.running()
}

// Row C21: what makes a VM ours is in the insert itself.
func TestC21LabelsAreThereFromTheFirstMoment(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.drive()
	require.Len(t, p.vms(), 1)
	assert.Equal(t, "inst", p.vms()[0].Labels[gcp.LabelInstallation])
	assert.Equal(t, "v1-aa", p.vms()[0].Labels[gcp.LabelSpecHash])
}
