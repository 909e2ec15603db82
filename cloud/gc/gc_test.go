package gc

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

const (
	zoneB = "europe-west1-b"
	zoneU = "us-central1-a"
)

// Row C9: an instance whose UID no Proxy has is not an orphan at once.
func TestC9OrphanIsDeletedByTheSecondSweepAndLogged(t *testing.T) {
	b := newHarness(t, nil)
	id := b.vm(zoneB, "dead", nil)
	b.vm(zoneB, "alive", nil)
	b.alive["alive"] = true
	b.sweep()
	assert.Len(t, b.left(), 2, "seen once")
	b.sweep()
	assert.Equal(t, []string{"alive"}, b.left())
	assert.Equal(t, []string{"dead"}, b.forgotten)
	assert.Equal(t, []string{"done 1 0", "done 1 1"}, b.results)
	for _, want := range []string{`"level":"WARN","msg":"deleting orphan`, `"provider":"gcp-eu"`, `"providerID":"zones/europe-west1-b/instances/proxy-dead"`, `"instanceID":"` + id + `"`, `"uid":"dead"`} {
		assert.Contains(t, b.log.String(), want)
	}
}

// Row C3: a new instance has no Proxy yet.
func TestC3InstanceYoungerThanMinAgeIsKept(t *testing.T) {
	b := newHarness(t, nil)
	b.sweep()
	b.vm(zoneB, "new", nil)
	for range 9 {
		b.clock.Step(time.Minute)
		b.Sweep(t.Context())
	}
	assert.Len(t, b.left(), 1)
	assert.Equal(t, "done 0 0", b.results[len(b.results)-1], "not even suspected")
	b.sweep()
	assert.Len(t, b.left(), 1, "suspected for the first time")
	b.sweep()
	assert.Empty(t, b.left())
}

// Row C3: the second sweep finds the Proxy that the first one missed.
func TestC3SuspectWithAProxyIsKept(t *testing.T) {
	b := newHarness(t, nil)
	b.vm(zoneB, "a", nil)
	b.sweep()
	b.alive["a"] = true
	b.sweep()
	b.alive = map[string]bool{}
	b.sweep()
	assert.Len(t, b.left(), 1, "two sweeps in a row")
	b.sweep()
	assert.Empty(t, b.left())
}

// Row C4: an API server that returns no Proxies, or fails, must not cause the deletion
// of a fleet.
func TestC4EmptyProxyListDeletesNothing(t *testing.T) {
	b := newHarness(t, nil)
	for i := range 50 {
		b.vm(zoneB, fmt.Sprintf("p%d", i), nil)
	}
	for range 3 {
		b.sweep()
	}
	assert.Len(t, b.left(), 50)
	assert.Equal(t, "refused 50 0", b.results[2])
	assert.Contains(t, b.log.String(), `"level":"ERROR","msg":"orphan sweep refused`)

	b.aliveErr = errors.New("connection refused")
	b.sweep()
	assert.Equal(t, "failed 0 0", b.results[3])
	assert.Len(t, b.left(), 50)
}

func TestC4BreakerIsThreeOrAFifth(t *testing.T) {
	for n, most := range map[int]int{0: 3, 1: 3, 15: 3, 19: 3, 20: 4, 50: 10, 1000: 200} {
		assert.Equal(t, most, breaker(n), n)
	}
	b := newHarness(t, nil)
	for i := range 20 {
		uid := fmt.Sprintf("p%d", i)
		b.vm(zoneB, uid, nil)
		b.alive[uid] = i >= 5
	}
	b.sweep()
	b.sweep()
	assert.Len(t, b.left(), 20, "five of twenty are too many")
	b.alive["p0"] = true
	b.sweep()
	assert.Len(t, b.left(), 16, "four are not")
}

// Rows C8 and C10: other installations share the project, and so do VMs without our
// labels.
func TestC8OnlyLabelledOrphansAreDeleted(t *testing.T) {
	b := newHarness(t, nil)
	b.vm(zoneB, "other", func(l map[string]string) { l[gcp.LabelInstallation] = "other" })
	b.vm(zoneB, "none", func(l map[string]string) { delete(l, gcp.LabelInstallation) })
	b.vm(zoneB, "nouid", func(l map[string]string) { delete(l, gcp.LabelUID) })
	b.sweep()
	b.sweep()
	b.sweep()
	assert.Len(t, b.left(), 3)
	assert.Equal(t, "done 0 0", b.results[2])
}

// Even if a provider lists too much, labels decide.
func TestC8OrphansIsPureAndChecksEveryLabel(t *testing.T) {
	old := time.Unix(1000, 0)
	ok := provider.Instance{ID: "1", UID: "u", Installation: "inst", CreatedAt: old}
	change := func(f func(*provider.Instance)) []provider.Instance {
		vm := ok
		f(&vm)
		return []provider.Instance{vm}
	}
	before := old.Add(time.Second)
	assert.Len(t, orphans([]provider.Instance{ok}, nil, "inst", before), 1)
	for name, vms := range map[string][]provider.Instance{
		"installation": change(func(vm *provider.Instance) { vm.Installation = "other" }),
		"no uid":       change(func(vm *provider.Instance) { vm.UID = "" }),
		"no id":        change(func(vm *provider.Instance) { vm.ID = "" }),
		"young":        change(func(vm *provider.Instance) { vm.CreatedAt = before }),
		"no age":       change(func(vm *provider.Instance) { vm.CreatedAt = time.Time{} }),
	} {
		assert.Empty(t, orphans(vms, nil, "inst", before), name)
	}
	assert.Empty(t, orphans([]provider.Instance{ok}, map[string]bool{"u": true}, "inst", before))
}

// Row D12: a list with gaps is not used, not even for the instances that it contains.
func TestD12PartialListSkipsTheSweep(t *testing.T) {
	for _, mode := range []gcestandin.ZoneMode{gcestandin.ZoneUnreachable, gcestandin.ZoneUnreachableLate, gcestandin.ZoneSilent} {
		b := newHarness(t, nil)
		b.vm(zoneB, "dead", nil)
		b.sweep()
		b.gce.SetZone(zoneU, mode)
		b.sweep()
		assert.Len(t, b.left(), 1)
		assert.Equal(t, "partial 0 0", b.results[1])
		b.gce.SetZone(zoneU, gcestandin.ZoneUp)
		b.sweep()
		assert.Empty(t, b.left(), "the skipped sweep did not clear the suspect")
	}
}
