package reconcile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
)

// chaos is a small fleet with random faults, from a seed.
type chaos struct {
	*harness
	rnd   *rand.Rand
	fleet []*hookProxy
	next  int
	// log of the events, for seeds that fail.
	log []string
}

func newChaos(t *testing.T, seed uint64) *chaos {
	timing := realistic()
	timing.ListLag = time.Duration(seed%3) * 20 * time.Second
	c := &chaos{harness: newHarness(t, harnessConfig{timing: timing}), rnd: rand.New(rand.NewPCG(seed, 1))}
	for range 5 {
		c.add()
	}
	return c
}

func (c *chaos) add() {
	p := c.proxy(c.next)
	c.next++
	p.req.Placement.Zone = []string{zoneB, zoneC, zoneU}[c.rnd.IntN(3)]
	p.req.Placement.FallbackZones = []v1alpha1.Zone{zoneD}
	p.req.Placement.Spot = c.rnd.IntN(2) == 0
	c.fleet = append(c.fleet, p)
}

func (c *chaos) note(format string, args ...any) {
	c.log = append(c.log, c.clock.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// happen makes one random event.
func (c *chaos) happen() {
	zone := []string{zoneB, zoneC, zoneD, zoneU}[c.rnd.IntN(4)]
	op := []string{"insert", "delete", "get", "operation", "list"}[c.rnd.IntN(5)]
	fault := gcestandin.Fault{Op: op, Count: 1 + c.rnd.IntN(3)}
	switch n := c.rnd.IntN(14); n {
	case 0:
		fault.DropAnswer = true
	case 1:
		fault.DropRequest = true
	case 2:
		fault.Status, fault.Reason = 503, "backendError"
	case 3:
		fault.Status, fault.Reason = 403, "rateLimitExceeded"
	case 4:
		fault = stockout(zone, 1+c.rnd.IntN(3))
	case 5:
		fault = gcestandin.Fault{Op: "delete", Count: 1, OperationError: &gcestandin.OperationError{Code: "INTERNAL_ERROR"}}
	case 6:
		fault = gcestandin.Fault{Op: []string{"insert", "delete"}[c.rnd.IntN(2)], Count: 1, OperationNeverEnds: true}
	default:
		c.happenToVMs(n, zone)
		return
	}
	c.note("fault %+v", fault)
	c.gce.AddFault(fault)
}

func (c *chaos) happenToVMs(n int, zone string) {
	modes := []gcestandin.ZoneMode{gcestandin.ZoneUp, gcestandin.ZoneUp, gcestandin.ZoneUnreachable, gcestandin.ZoneUnreachableLate, gcestandin.ZoneSilent}
	switch {
	case n == 7:
		mode := modes[c.rnd.IntN(len(modes))]
		c.note("zone %s is %q", zone, mode)
		c.gce.SetZone(zone, mode)
	case n == 8:
		c.note("adapter killed")
		c.restart()
	case n == 9:
		c.gce.ForgetOperations()
	default:
		vms := c.gce.VMs()
		if len(vms) == 0 {
			return
		}
		vm := vms[c.rnd.IntN(len(vms))]
		c.note("case %d happens to %s in %s", n, vm.Name, vm.Zone)
		switch n {
		case 10:
			_ = c.gce.Preempt(vm.Zone, vm.Name)
		case 11:
			_ = c.gce.Remove(vm.Zone, vm.Name)
		case 12:
			_ = c.gce.SetStatus(vm.Zone, vm.Name, []string{"STOPPED", "REPAIRING", "SUSPENDED", "NEW", ""}[c.rnd.IntN(5)])
		}
	}
}

// ask is one resync of the hooks: most Proxies repeat their request, some request a
// replacement or a deletion.
func (c *chaos) ask(t *testing.T) {
	kept := c.fleet[:0]
	for _, p := range c.fleet {
		if p.leaving {
			got, err := p.tryDelete(p.providerID)
			if err == nil && got.State == adapter.StateAbsent {
				require.Empty(t, p.vms(), "%s was reported absent\n%s", p.req.Proxy, strings.Join(c.log, "\n"))
				c.note("%s is gone", p.req.Proxy)
				continue
			}
			kept = append(kept, p)
			continue
		}
		got, err := p.tryPut()
		if err == nil && got.InstanceID != "" {
			p.providerID = got.ProviderID
			if got.State == adapter.StateRunning && c.rnd.IntN(40) == 0 {
				p.req.Replace = got.InstanceID
				c.note("replace %s of %s", got.InstanceID, p.req.Proxy)
			}
		}
		if c.rnd.IntN(60) == 0 {
			p.leaving = true
			c.note("delete %s", p.req.Proxy)
		}
		kept = append(kept, p)
	}
	c.fleet = kept
	for len(c.fleet) < 5 {
		c.add()
	}
}

// For every sequence of faults: a UID never has two VMs, no existing VM is reported
// absent, and after the faults every Proxy reaches its desired state.
func TestChaos(t *testing.T) {
	seeds := uint64(24)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := newChaos(t, seed)
			for range 400 {
				c.drive()
				if c.rnd.IntN(6) == 0 {
					c.happen()
				}
				if c.rnd.IntN(3) == 0 {
					c.ask(t)
				}
				c.clock.Step(time.Duration(1+c.rnd.IntN(3)) * time.Second)
				require.Empty(t, c.doubles, strings.Join(c.log, "\n"))
			}
			c.calmDown(t)
		})
	}
}

// calmDown ends all faults and waits until every Proxy has its desired instance, and
// no other VM exists.
func (c *chaos) calmDown(t *testing.T) {
	c.note("calm")
	c.gce.ClearFaults()
	for _, zone := range []string{zoneB, zoneC, zoneD, zoneU} {
		c.gce.SetZone(zone, gcestandin.ZoneUp)
	}
	for _, vm := range c.gce.VMs() {
		if vm.Status == "REPAIRING" || vm.Status == "NEW" {
			_ = c.gce.SetStatus(vm.Zone, vm.Name, "")
		}
	}
	settled := func() bool {
		ok, vms := true, 0
		for _, p := range c.fleet {
			if p.leaving {
				got, err := p.tryDelete("")
				ok = ok && err == nil && got.State == adapter.StateAbsent
				continue
			}
			got, err := p.tryPut()
			ok = ok && err == nil && got.State == adapter.StateRunning && got.InstanceID != p.req.Replace
			vms++
		}
		return ok && len(c.gce.VMs()) == vms
	}
	for range 3600 {
		c.drive()
		if settled() {
			return
		}
		c.clock.Step(time.Second)
	}
	for _, p := range c.fleet {
		got, err := p.tryPut()
		c.note("%s: %+v %v, %d VMs", p.req.Proxy, got, err, len(p.vms()))
	}
	require.Fail(t, "it does not settle", strings.Join(c.log, "\n"))
}
