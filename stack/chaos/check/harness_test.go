package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// s is a moment in seconds.
func s(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// scene is a small campaign in which nothing is wrong and every promise is tried.
// Tests change it.
type scene struct {
	records []history.Record
	calls   map[string]*history.Call
	objects map[string]*history.Object
	tables  map[string]*history.VMs
	acts    map[string]*history.Act
	truths  map[string]*history.Truth
	metrics map[string]*history.Metrics
	probes  map[string]*history.Object
	running *history.Processes
}

// Endpoints of the scene.
const (
	extAt   = "127.3.0.1:3128"
	podAt   = "127.1.0.1:3128"
	vmAt    = "127.2.0.1:3128"
	vmNewAt = "127.2.0.2:3128"
)

func newScene() *scene {
	x := &scene{
		calls: map[string]*history.Call{}, objects: map[string]*history.Object{}, tables: map[string]*history.VMs{},
		acts: map[string]*history.Act{}, truths: map[string]*history.Truth{}, metrics: map[string]*history.Metrics{},
		probes: map[string]*history.Object{},
	}
	x.add(history.Record{Begin: &history.Begin{Seed: 1}})
	for at, stage := range map[float64]history.StageName{
		1: history.StageFill, 10: history.StageBaseline, 20: history.StageFaults, 200: history.StageRecovery,
		260: history.StageSettled, 300: history.StageEnd,
	} {
		x.add(history.Record{Stage: &history.Stage{Stamp: stamp(at), Name: stage}})
	}
	x.fleet()
	x.troubles()
	x.crawlers()
	for name, at := range map[string]float64{"before": 12, "after": 280} {
		x.metrics[name] = &history.Metrics{
			Stamp: stamp(at), Process: "prober", PID: 7, RSS: 50 << 20, Heap: 10 << 20, Goroutines: 100, FDs: 40, Series: 200,
		}
		x.add(history.Record{Metrics: x.metrics[name]})
	}
	x.pressure(s(0.01), 0)
	return x
}

func stamp(at float64) history.Stamp { return history.Stamp{At: s(at)} }

func (x *scene) add(r history.Record) { x.records = append(x.records, r) }

// pressure has a sample for each second, but of one.
func (x *scene) pressure(late time.Duration, skip int) {
	for at := 1; at <= 300; at++ {
		if at != skip {
			x.add(history.Record{Pressure: &history.Pressure{Stamp: stamp(float64(at)), Over: s(1), Waited: s(0.2), Late: late}})
		}
	}
}

func wanted(hash, zone, endpoint string) *history.Wanted {
	w := &history.Wanted{
		Mode: "Managed", SpecHash: hash, Zone: zone, Port: 3128, MaxLeases: 2, Endpoint: endpoint,
		Interval: s(2), Timeout: s(2), FailureThreshold: 3, SuccessThreshold: 1,
	}
	if endpoint != "" {
		w.Mode = "External"
	}
	return w
}

func (x *scene) act(name string, at float64, verb history.Verb, proxy, uid string, w *history.Wanted) *history.Act {
	a := &history.Act{Stamp: stamp(at), Verb: verb, Proxy: proxy, UID: uid, Asked: s(at), Answered: s(at + 0.1), Wanted: w}
	x.acts[name] = a
	x.add(history.Record{Act: a})
	return a
}

// proxy records a Proxy as it is seen at a moment.
func (x *scene) proxy(name string, at float64, o history.Object) *history.Object {
	o.Stamp, o.Kind, o.Name = stamp(at), "Proxy", "default/"+o.Name
	if o.Change == "" {
		o.Change = history.Modified
	}
	if o.Phase != "" {
		o.Conditions = []history.Condition{{Type: "Provisioned", Status: "True"}, {Type: "Healthy", Status: "False", Reason: "DialFailed"}}
		if o.Phase == "Ready" {
			o.Conditions[1] = history.Condition{Type: "Healthy", Status: "True", Reason: "ProbeSucceeded"}
		}
	}
	x.objects[name] = &o
	x.add(history.Record{Object: &o})
	return &o
}

func (x *scene) child(name string, at float64, o history.Object) *history.Object {
	o.Stamp = stamp(at)
	if o.Change == "" {
		o.Change = history.Added
	}
	if o.Kind == "ProxyProbe" {
		x.probes[name] = &o
	} else {
		x.objects[name] = &o
	}
	x.add(history.Record{Object: &o})
	return &o
}

func (x *scene) probe(uid string, at float64, endpoint string) {
	x.child(uid, at, history.Object{Kind: "ProxyProbe", Name: "default/" + uid, UID: "probe-" + uid, OwnerUID: uid, Endpoint: endpoint, ResourceVersion: "1"})
}

func (x *scene) table(name string, at, confirmed float64, vms ...history.VM) {
	t := &history.VMs{Stamp: stamp(at), Asked: s(at - 0.05), Confirmed: s(confirmed), VMs: vms}
	x.tables[name] = t
	x.add(history.Record{VMs: t})
}

func machine(id, uid, hash, state string) history.VM {
	return history.VM{ID: id, Name: "proxy-" + id, Zone: "z", UID: uid, SpecHash: hash, State: state}
}

// check is the result on the scene.
func (x *scene) check(t *testing.T) *Result {
	t.Helper()
	h, err := history.New(x.records...)
	require.NoError(t, err)
	number(h)
	return Run(h)
}

// number gives records lines, as a file would.
func number(h *history.History) {
	line := 0
	next := func(s *history.Stamp) { line++; s.Line = line }
	for i := range h.Calls {
		next(&h.Calls[i].Stamp)
	}
	for i := range h.Objects {
		next(&h.Objects[i].Stamp)
	}
	for i := range h.VMs {
		next(&h.VMs[i].Stamp)
	}
	for i := range h.Acts {
		next(&h.Acts[i].Stamp)
	}
	for i := range h.Truths {
		next(&h.Truths[i].Stamp)
	}
}

// fleet has a Pod that nothing happens to, a VM that is replaced after an edit, a VM
// whose Proxy is deleted and made again under its name, and an External proxy that dies
// for a while.
func (x *scene) fleet() {
	x.act("create pod", 2, history.Create, "default/pod", "up", wanted("v1-p", "", ""))
	x.act("create vm", 2, history.Create, "default/vm", "uv", wanted("v1-a", "z", ""))
	x.act("create old", 2, history.Create, "default/old", "uo", wanted("v1-o", "z", ""))
	x.act("create ext", 2, history.Create, "default/ext", "ue", wanted("", "", extAt))
	ready := func(name string, at float64, proxy, uid, instance, hash, endpoint string, w *history.Wanted) {
		x.proxy(name, at, history.Object{
			Name: proxy, UID: uid, ResourceVersion: "20", Generation: 1, ObservedGeneration: 1, Wanted: w, Phase: "Ready",
			InstanceID: instance, SpecHash: hash, Endpoint: endpoint,
		})
		x.probe(uid, at, endpoint)
	}
	ready("pod ready", 6, "pod", "up", "pod-1", "v1-p", podAt, wanted("v1-p", "", ""))
	ready("vm ready", 6, "vm", "uv", "11", "v1-a", vmAt, wanted("v1-a", "z", ""))
	ready("old ready", 6, "old", "uo", "13", "v1-o", "127.2.0.3:3128", wanted("v1-o", "z", ""))
	ready("ext ready", 6, "ext", "ue", "external-1", "", extAt, wanted("", "", extAt))
	x.child("pod", 3, history.Object{Kind: "Pod", Name: "default/proxy-p", UID: "pod-1", OwnerUID: "up", SpecHash: "v1-p", Phase: "Running", ResourceVersion: "10"})
	x.running = &history.Processes{Stamp: stamp(5), Processes: []history.Process{{PID: 1, Name: "squid", State: "S", Pod: "pod-1"}}}
	x.add(history.Record{Processes: x.running})
	x.table("first", 4, 0, machine("11", "uv", "v1-a", "PROVISIONING"), machine("13", "uo", "v1-o", "RUNNING"))
	x.table("up", 5, 4.5, machine("11", "uv", "v1-a", "RUNNING"), machine("13", "uo", "v1-o", "RUNNING"))
}

func (x *scene) troubles() {
	fault := func(f history.Fault) { x.add(history.Record{Fault: &f}) }
	fault(history.Fault{Stamp: stamp(42), ID: 1, Family: history.Kill, Subject: "metacontroller", From: s(40), To: s(42)})
	fault(history.Fault{Stamp: stamp(55), ID: 2, Family: history.TargetDown, From: s(50), To: s(55)})

	x.truth("dies", 60, history.Dead)
	x.proxy("ext dies", 70, history.Object{Name: "ext", UID: "ue", ResourceVersion: "30", Generation: 1, ObservedGeneration: 1, Wanted: wanted("", "", extAt), Phase: "Unhealthy", InstanceID: "external-1", Endpoint: extAt})
	x.truth("lives", 90, history.Alive)
	x.proxy("ext lives", 95, history.Object{Name: "ext", UID: "ue", ResourceVersion: "31", Generation: 1, ObservedGeneration: 1, Wanted: wanted("", "", extAt), Phase: "Ready", InstanceID: "external-1", Endpoint: extAt})

	x.act("edit vm", 100, history.Edit, "default/vm", "uv", wanted("v1-b", "z", "")).Replaces = true
	x.proxy("vm edited", 100.1, history.Object{Name: "vm", UID: "uv", ResourceVersion: "40", Generation: 2, ObservedGeneration: 1, Wanted: wanted("v1-b", "z", ""), Phase: "Ready", InstanceID: "11", SpecHash: "v1-a", Endpoint: vmAt})
	x.table("leaves", 102, 101.9, machine("11", "uv", "v1-a", "STOPPING"), machine("13", "uo", "v1-o", "RUNNING"))
	x.table("left", 104, 103.9, machine("13", "uo", "v1-o", "RUNNING"))
	x.table("new", 105, 104.9, machine("12", "uv", "v1-b", "RUNNING"), machine("13", "uo", "v1-o", "RUNNING"))
	x.proxy("vm again", 108, history.Object{Name: "vm", UID: "uv", ResourceVersion: "41", Generation: 2, ObservedGeneration: 2, Wanted: wanted("v1-b", "z", ""), Phase: "Ready", InstanceID: "12", SpecHash: "v1-b", Endpoint: vmNewAt})
	x.probe("uv", 108, vmNewAt)

	x.act("delete old", 120, history.Delete, "default/old", "uo", nil)
	x.proxy("old leaves", 120.1, history.Object{Name: "old", UID: "uo", ResourceVersion: "50", Deleting: true, Wanted: wanted("v1-o", "z", ""), InstanceID: "13", Endpoint: "127.2.0.3:3128"})
	x.table("old stops", 122, 121.9, machine("12", "uv", "v1-b", "RUNNING"), machine("13", "uo", "v1-o", "STOPPING"))
	x.table("old gone", 124, 123.9, machine("12", "uv", "v1-b", "RUNNING"))
	x.child("old probe gone", 124.5, history.Object{Kind: "ProxyProbe", Change: history.Deleted, Name: "default/uo", UID: "probe-uo", OwnerUID: "uo", ResourceVersion: "51"})
	x.proxy("old gone", 125, history.Object{Name: "old", UID: "uo", ResourceVersion: "52", Change: history.Deleted, Deleting: true})
	x.act("recreate old", 130, history.Recreate, "default/old", "uo2", wanted("v1-o", "z", ""))
	x.table("old again", 132, 131.9, machine("12", "uv", "v1-b", "RUNNING"), machine("14", "uo2", "v1-o", "RUNNING"))
	x.proxy("old ready again", 136, history.Object{Name: "old", UID: "uo2", ResourceVersion: "60", Generation: 1, ObservedGeneration: 1, Wanted: wanted("v1-o", "z", ""), Phase: "Ready", InstanceID: "14", SpecHash: "v1-o", Endpoint: "127.2.0.4:3128"})
	x.probe("uo2", 136, "127.2.0.4:3128")
}

func (x *scene) truth(name string, at float64, state history.State) {
	t := &history.Truth{Stamp: stamp(at), Proxy: "default/ext", UID: "ue", Endpoint: extAt, State: state}
	x.truths[name] = t
	x.add(history.Record{Truth: t})
}

// call records one on the External proxy.
func (x *scene) call(name string, at float64, c history.Call) *history.Call {
	c.Stamp, c.Asked, c.Answered = stamp(at), s(at), s(at+0.1)
	if c.Domain == "" {
		c.Domain = "file"
	}
	if c.Proxy == "" && c.LeaseID != "" {
		c.Proxy, c.Endpoint = "default/ext", extAt
	}
	x.calls[name] = &c
	x.add(history.Record{Call: &c})
	return &c
}

func (x *scene) grant(id string, at, until float64, token uint64) *history.Call {
	return x.call(id, at, history.Call{Kind: history.Acquire, Status: 201, LeaseID: id, FencingToken: token, ExpiresAt: s(until)})
}

func (x *scene) crawlers() {
	x.grant("L1", 30, 40, 101)
	x.call("L1 renewed", 35, history.Call{Kind: history.Renew, Status: 200, LeaseID: "L1", FencingToken: 101, ExpiresAt: s(45)})
	x.call("L1 seen", 38, history.Call{Kind: history.Get, Status: 200, LeaseID: "L1", FencingToken: 101, ExpiresAt: s(45)})
	x.grant("L2", 46, 56, 102)
	x.call("L1 released", 47, history.Call{Kind: history.Release, Status: 204, LeaseID: "L1"})
	x.call("L2 seen", 48, history.Call{Kind: history.Get, Status: 200, LeaseID: "L2", FencingToken: 102, ExpiresAt: s(56)})
	x.call("L2 released", 49, history.Call{Kind: history.Release, Status: 204, LeaseID: "L2"})
	x.call("L2 unknown", 49.5, history.Call{Kind: history.Get, Status: 404, Code: "unknown_lease", Detail: "no", LeaseID: "L2"})

	x.grant("L4", 51, 59, 104).Key = "k"
	x.grant("L4", 52, 59, 104).Key = "k"
	x.calls["L4 again"] = x.calls["L4"]
	x.grant("R1", 31, 41, 101).Domain = "redis"
	x.grant("R2", 33, 41, 107).Domain = "redis" // which fills it
	x.call("none", 80, history.Call{Kind: history.Acquire, Status: 409, Code: "no_match", Detail: "1 proxy matches", RetryAfter: "30", Counts: map[string]int{"considered": 1, "unhealthy": 1}})
	x.call("nothing", 81, history.Call{Kind: history.Acquire, Status: 409, Code: "no_match", Detail: "no proxy matches", Counts: map[string]int{"considered": 0}})
}
