package reconcile

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gc"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// owners are the existing Proxies, by UID.
type owners map[string]bool

func (o owners) UIDs(context.Context) (map[string]bool, error) { return o, nil }
func (owners) Swept(_, _ string, _, _ int)                     {}

// collector of the harness's project.
func (b *harness) collector(o owners) *gc.Collector {
	return gc.New(gc.Config{
		Installation: "inst", Providers: b.opts.Providers, Proxies: o, Swept: o.Swept,
		Forget: func(uid string) { b.reconciler.Forget(uid) }, Bucket: b.opts.Bucket,
		MinAge: 10 * time.Minute, Clock: b.clock, Log: b.opts.Log,
	})
}

// abandon advances the clock without any request and without any Proxy, with two
// sweeps past the minimum age of the instances that were in flight.
func (b *harness) abandon(t *testing.T) {
	t.Helper()
	collector := b.collector(nil)
	for minute := range 25 {
		steps := time.Duration(1)
		if minute < 3 { // in which calls in flight end
			steps = 4
		}
		for range steps {
			b.survive(b.drive)
			b.clock.Step(time.Minute / steps)
		}
		if minute == 11 || minute == 21 {
			collector.Sweep(t.Context())
		}
	}
}

// A Proxy vanishes without its finalizer at every moment of an insert, a replacement
// and a deletion, with the adapter killed at that moment and without. Two sweeps past
// the minimum age later no instance exists, and none appears.
func TestOrphansAreDeletedWithinTwoSweeps(t *testing.T) {
	for _, s := range scenarios() {
		if s.name != "insert" && s.name != "replace" && s.name != "delete" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for i, op := range runScenario(t, s, false) {
				for _, kill := range []string{"no kill", "before", "after"} {
					left := abandonedAt(t, s, i+1, kill)
					require.Empty(t, left, "call %d (%s), %s", i+1, op, kill)
				}
			}
		})
	}
}

// abandonedAt runs a scenario up to its nth call, at which the Proxy vanishes, and
// returns the names of the VMs that exist two sweeps later.
func abandonedAt(t *testing.T, s scenario, n int, kill string) (left []string) {
	t.Helper()
	c := &crasher{after: kill == "after"}
	if kill != "no kill" {
		c.at = []int{n}
	}
	timing := realistic()
	timing.Delete = 8 * time.Second // as in the scenario above
	b := newHarness(t, harnessConfig{timing: timing, wrap: func(inner provider.Cloud) provider.Cloud { c.Cloud = inner; return c }})
	p := b.proxy(1)
	done := false
	for c.calls < n && !done {
		done = b.survive(b.drive) && s.step(p)
		b.clock.Step(time.Second)
	}
	b.abandon(t)
	for _, vm := range b.gce.VMs() {
		left = append(left, vm.Name)
	}
	return left
}

// The collector is killed as well, at each of its calls. Its successor has no
// suspects, needs two sweeps, and never touches an owned instance.
func TestCollectorKilledAtEveryCall(t *testing.T) {
	for at := 1; at <= 3; at++ {
		for _, after := range []bool{false, true} {
			c := &crasher{after: after}
			b := newHarness(t, harnessConfig{timing: realistic(), wrap: func(inner provider.Cloud) provider.Cloud { c.Cloud = inner; return c }})
			owned, orphan := b.proxy(1), b.proxy(2)
			owned.running()
			orphan.running()
			alive := owners{owned.req.UID: true}
			collector := b.collector(alive)
			b.pass(15 * time.Minute)
			collector.Sweep(t.Context())

			// The second sweep lists, reads and deletes.
			c.calls, c.at, c.ops = 0, []int{at}, nil
			assert.False(t, b.survive(func() { collector.Sweep(t.Context()) }))
			assert.Equal(t, []string{"list", "get", "delete"}[:at], c.ops)
			b.pass(time.Minute)
			deleted := at == 3 && after
			assert.Equal(t, deleted, len(orphan.vms()) == 0)

			successor := b.collector(alive)
			successor.Sweep(t.Context())
			b.pass(time.Minute)
			assert.Equal(t, deleted, len(orphan.vms()) == 0, "a successor looks twice")
			successor.Sweep(t.Context())
			b.pass(time.Minute)
			assert.Empty(t, orphan.vms())
			assert.Len(t, owned.vms(), 1)
		}
	}
}
