package reconcile

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// A killed adapter loses its cache. Its state changes with its calls only, so that the
// moments that differ are those before and after each call: before the request is
// sent, and after the provider has handled it while the response is lost. These tests
// find all calls of a scenario by running it, and then run it again for each of these
// moments, and for pairs of them.

// scenario is the life of one Proxy, with a caller that retries until it gets the
// wanted response, as hooks do. step reports whether the scenario is done.
type scenario struct {
	name   string
	before func(*harness)
	step   func(*hookProxy) (done bool)
	// left is how many VMs of the Proxy exist at the end.
	left int
}

// want requests an instance with this hash, and the replacement of any other.
func (p *hookProxy) want(hash string) bool {
	got, err := p.tryPut()
	if err != nil || got.State != adapter.StateRunning {
		return false
	}
	if got.SpecHash == hash {
		return true
	}
	p.req.SpecHash, p.req.Replace = hash, got.InstanceID
	_, err = p.tryPut()
	require.NoError(p.b.t, err)
	return false
}

func (p *hookProxy) wantGone() bool {
	got, err := p.tryDelete("")
	gone := err == nil && got.State == adapter.StateAbsent
	if gone {
		require.Empty(p.b.t, p.vms(), "the finalizer is removed while a VM lives")
	}
	return gone
}

// phases runs one step after the other.
func phases(steps ...func(*hookProxy) bool) func(*hookProxy) bool {
	i := 0
	return func(p *hookProxy) bool {
		for i < len(steps) && steps[i](p) {
			i++
		}
		return i == len(steps)
	}
}

func scenarios() []scenario {
	run := func(p *hookProxy) bool { return p.want("v1-aa") }
	replace := func(p *hookProxy) bool { return p.want("v1-bb") }
	gone := func(p *hookProxy) bool { return p.wantGone() }
	// sent is done when an insert was sent, with any outcome.
	sent := func(p *hookProxy) bool { _, _ = p.tryPut(); return p.b.count("insert") > 0 }
	return []scenario{
		{name: "insert", step: sequence(run), left: 1},
		{name: "insert in a fallback zone", step: sequence(run), left: 1, before: func(b *harness) { b.gce.AddFault(stockout(zoneB, 0)) }},
		{name: "insert without answer", step: sequence(run), left: 1, before: func(b *harness) {
			b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropAnswer: true})
		}},
		{name: "insert that did not arrive", step: sequence(run), left: 1, before: func(b *harness) {
			b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropRequest: true})
		}},
		{name: "replace", step: sequence(run, replace), left: 1},
		{name: "delete", step: sequence(run, gone)},
		{name: "delete while inserting", step: sequence(sent, gone)},
		{name: "delete without answer", step: sequence(run, gone), before: func(b *harness) {
			b.gce.AddFault(gcestandin.Fault{Op: "delete", Count: 1, DropAnswer: true})
		}},
		{name: "stopped", left: 1, step: sequence(run, func(p *hookProxy) bool {
			if vms := p.vms(); len(vms) == 1 {
				_ = p.b.gce.SetStatus(vms[0].Zone, vms[0].Name, "TERMINATED")
			}
			return true
		}, func(p *hookProxy) bool { _, _ = p.tryPut(); return p.b.count("insert") > 1 }, run)},
	}
}

// sequence returns a step that can be run by several harnesses: its phases depend on
// the Proxy and the harness alone.
func sequence(steps ...func(*hookProxy) bool) func(*hookProxy) bool {
	return func(p *hookProxy) bool {
		if p.b.progress == nil {
			p.b.progress = phases(steps...)
		}
		return p.b.progress(p)
	}
}

// runScenario runs a scenario to its end and returns the operations that were called.
func runScenario(t *testing.T, s scenario, after bool, at ...int) (ops []string) {
	t.Helper()
	c := &crasher{after: after, at: at}
	timing := realistic()
	timing.Delete = 8 * time.Second
	b := newHarness(t, harnessConfig{timing: timing, wrap: func(inner provider.Cloud) provider.Cloud { c.Cloud = inner; return c }})
	if s.before != nil {
		s.before(b)
	}
	p := b.proxy(1)
	p.req.Placement.FallbackZones = []v1alpha1.Zone{zoneC}
	done := false
	for range 30 * 60 {
		if b.survive(b.drive) && s.step(p) {
			done = true
			break
		}
		b.clock.Step(time.Second)
	}
	require.True(t, done, "killed at %v (after=%v): the scenario does not end; calls %v", at, after, c.ops)
	require.Len(t, p.vms(), s.left, "killed at %v (after=%v)", at, after)
	require.Empty(t, c.at, "not every kill was reached")
	ops = c.ops
	// No VM appears later.
	for range 60 {
		b.survive(b.drive)
		b.clock.Step(time.Second)
	}
	require.Len(t, p.vms(), s.left, "killed at %v (after=%v), a minute later", at, after)
	return ops
}

// Every moment of every scenario, and with them all fault points: a call that is added
// to provider.Cloud must be part of a scenario.
func TestCrashAtEveryCall(t *testing.T) {
	died := map[faultPoint]bool{}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			ops := runScenario(t, s, false)
			t.Logf("%d calls: %v", len(ops), ops)
			for i, op := range ops {
				runScenario(t, s, false, i+1)
				runScenario(t, s, true, i+1)
				died[faultPoint{op, false}], died[faultPoint{op, true}] = true, true
			}
		})
	}
	if !t.Failed() && len(died) > 0 { // unless -run selects one scenario
		for _, p := range faultPoints() {
			assert.True(t, died[p], "no scenario was killed at %v", p)
		}
	}
}

// Killed again while recovering from the first kill, up to eight calls later.
func TestCrashTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for _, s := range scenarios()[:6] {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			calls := len(runScenario(t, s, false))
			for i := 1; i <= calls; i += 2 {
				for _, gap := range []int{1, 2, 3, 5, 8} {
					runWithTwoKills(t, s, i, i+gap)
				}
			}
		})
	}
}

// runWithTwoKills runs a scenario with two kills, unless the recovery needs fewer
// calls than the second kill waits for.
func runWithTwoKills(t *testing.T, s scenario, first, second int) {
	t.Helper()
	ops := runScenario(t, s, true, first)
	if len(ops) >= second {
		runScenario(t, s, true, first, second)
	}
}

// faultPoint is a moment to be killed at: before a request is sent, or after the
// provider has handled it, before its response.
type faultPoint struct {
	op    string
	after bool
}

// calls are the methods of provider.Cloud that reach the provider, as those that
// take a context do.
func calls() []reflect.Method {
	var out []reflect.Method
	cloud, ctx := reflect.TypeFor[provider.Cloud](), reflect.TypeFor[context.Context]()
	for i := range cloud.NumMethod() {
		if m := cloud.Method(i); m.Type.NumIn() > 0 && m.Type.In(0) == ctx {
			out = append(out, m)
		}
	}
	return out
}

// faultPoints returns all of them.
func faultPoints() []faultPoint {
	var out []faultPoint
	for _, m := range calls() {
		op := strings.ToLower(m.Name)
		out = append(out, faultPoint{op, false}, faultPoint{op, true})
	}
	return out
}

// killed is the crasher's panic.
type killed struct{}

// crasher is a provider that kills its caller at chosen calls.
type crasher struct {
	provider.Cloud
	calls int
	// at are the calls to be killed at, counted from 1, in order; with after the
	// provider handles them first.
	at    []int
	after bool
	ops   []string
}

func (c *crasher) around(op string, call func()) {
	c.calls++
	c.ops = append(c.ops, op)
	die := len(c.at) > 0 && c.at[0] == c.calls
	if die {
		c.at = c.at[1:]
	}
	if die && !c.after {
		panic(killed{})
	}
	call()
	if die {
		panic(killed{})
	}
}

func (c *crasher) Insert(ctx context.Context, r provider.InsertRequest) (op provider.Operation, err error) {
	c.around("insert", func() { op, err = c.Cloud.Insert(ctx, r) })
	return op, err
}

func (c *crasher) Get(ctx context.Context, r provider.Ref) (vm provider.Instance, err error) {
	c.around("get", func() { vm, err = c.Cloud.Get(ctx, r) })
	return vm, err
}

func (c *crasher) Delete(ctx context.Context, r provider.Ref, id string) (op provider.Operation, err error) {
	c.around("delete", func() { op, err = c.Cloud.Delete(ctx, r, id) })
	return op, err
}

func (c *crasher) Operation(ctx context.Context, zone, name string) (op provider.Operation, err error) {
	c.around("operation", func() { op, err = c.Cloud.Operation(ctx, zone, name) })
	return op, err
}

func (c *crasher) List(ctx context.Context) (l provider.Listing, err error) {
	c.around("list", func() { l, err = c.Cloud.List(ctx) })
	return l, err
}

// survive runs f and starts a new reconciler if the old one was killed in it. It
// reports whether it survived.
func (b *harness) survive(f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, isKill := r.(killed); !isKill {
				panic(r)
			}
			b.restart()
			ok = false
		}
	}()
	f()
	return true
}

func TestCrasherKillsAtChosenCalls(t *testing.T) {
	c := &crasher{at: []int{2}}
	assert.NotPanics(t, func() { c.around("x", func() {}) })
	ran := false
	assert.PanicsWithValue(t, killed{}, func() { c.around("x", func() { ran = true }) })
	assert.False(t, ran)
	c = &crasher{at: []int{1}, after: true}
	assert.PanicsWithValue(t, killed{}, func() { c.around("x", func() { ran = true }) })
	assert.True(t, ran)
	assert.Equal(t, 1, c.calls)
}

// A call without a crash would be a fault point that no test covers.
func TestCrasherCoversEveryCall(t *testing.T) {
	assert.Len(t, faultPoints(), 10)
	for _, m := range calls() {
		c := &crasher{at: []int{1}}
		var in []reflect.Value
		for i := range m.Type.NumIn() {
			in = append(in, reflect.Zero(m.Type.In(i)))
		}
		assert.PanicsWithValue(t, killed{}, func() { reflect.ValueOf(c).MethodByName(m.Name).Call(in) }, m.Name)
		assert.Equal(t, []string{strings.ToLower(m.Name)}, c.ops)
	}
}
