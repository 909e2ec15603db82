package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
)

func stockout(zone string, count int) gcestandin.Fault {
	return gcestandin.Fault{Op: "insert", Zone: zone, Count: count, OperationError: &gcestandin.OperationError{
		Code: "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", Message: "no e2-micro left",
	}}
}

// Rows D1 and D4: the insert succeeds, and only its operation reports the stockout.
func TestD1StockoutOfTheOperationBacksOff(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
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

// Row D2: fallback zones in their order, with a backoff per zone.
func TestD2StockoutFallsBackToTheNextZoneForAllProxies(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
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

func (b *harness) insertZones() []string {
	var out []string
	for _, c := range b.gce.Calls() {
		if c.Op == "insert" {
			out = append(out, c.Zone)
		}
	}
	return out
}

func TestAfterABackoffOneInsertTriesForAll(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(stockout(zoneB, 0))
	ps := []*hookProxy{b.proxy(1), b.proxy(2), b.proxy(3), b.proxy(4)}
	b.drive()
	putAll := func() {
		for _, p := range ps {
			p.put()
		}
	}
	putAll()
	b.pass(30 * time.Second)
	require.Equal(t, 4, b.count("insert"), "nobody knew")
	var tried []int // inserts per minute
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

// Row D5: quotas have a long retry interval, name the quota, and do not fall back to
// another zone.
func TestD5QuotaIsRetriedLaterAndNamed(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
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

func TestQuotaErrorOfTheCallIsRetriedLater(t *testing.T) {
	b := newHarness(t, harnessConfig{})
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

func TestGateBacksOffAndCountsAStockoutOnce(t *testing.T) {
	gs, k := gates{}, gateKey{"a", "m"}
	assert.Equal(t, at0(120), gs.stockout(k, "x", t0))
	assert.Equal(t, at0(120), gs.stockout(k, "x", at0(10)), "inserts that were sent before")
	assert.Equal(t, at0(120+240), gs.stockout(k, "x", at0(120)))
	assert.Equal(t, at0(1000), gs.quota(k, "y", at0(700), 300*time.Second))
	assert.Equal(t, at0(1000), gs[k].closedUntil("u", at0(999)))
	assert.Zero(t, gs[k].closedUntil("u", at0(1000)))
	gs.startTrial(k, "u", at0(1000))
	assert.Zero(t, gs[k].closedUntil("u", at0(1001)), "the one that tries may try again")
	assert.Equal(t, at0(1120), gs[k].closedUntil("v", at0(1001)))
	assert.Zero(t, gs[k].closedUntil("v", at0(1120)), "patience is over")
}
