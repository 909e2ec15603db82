package check

import "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"

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
