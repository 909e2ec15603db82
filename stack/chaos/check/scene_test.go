package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// s is a moment in seconds.
func s(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// scene is a small campaign in which nothing is wrong and every promise is tried.
// Tests plant something in it.
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
	x.add(history.Record{Begin: &history.Begin{Seed: 1, Domains: []history.Domain{{Name: "file"}, {Name: "redis"}}}})
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
