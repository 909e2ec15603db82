package check

import (
	"testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

func TestNotDoubled(t *testing.T) {
	twoPods := func(uid string) func(*scene) {
		return func(x *scene) {
			x.child("second", 5, history.Object{Kind: "Pod", Name: "default/second", UID: "pod-2", OwnerUID: uid, SpecHash: "v1-p", Phase: "Running", ResourceVersion: "11"})
			x.child("second gone", 9, history.Object{Kind: "Pod", Change: history.Deleted, Name: "default/second", UID: "pod-2", OwnerUID: uid, SpecHash: "v1-p", Phase: "Failed", ResourceVersion: "12"})
			x.add(history.Record{Processes: &history.Processes{Stamp: stamp(6), Processes: []history.Process{{PID: 1, State: "S", Pod: "pod-1"}, {PID: 2, State: "S", Pod: "pod-2"}}}})
			x.add(history.Record{Processes: &history.Processes{Stamp: stamp(8), Processes: x.running.Processes}})
		}
	}
	hold(t, NotDoubled, map[string]mutation{
		"two VMs": {func(x *scene) {
			x.tables["leaves"].VMs = append(x.tables["leaves"].VMs, machine("12", "uv", "v1-b", "PROVISIONING"))
		}, "the VMs 11 and 12 at once", nil, false},
		"VMs that are none of ours": {func(x *scene) {
			x.tables["leaves"].VMs = append(x.tables["leaves"].VMs, machine("98", "", "", "RUNNING"), machine("99", "", "", "RUNNING"))
		}, "", nil, false},
		"processes of two Pods": {twoPods("up"), "the Pods pod-1 and pod-2 at once", nil, false},
		"of two Proxies":        {twoPods("gone"), "", nil, false},
		"two processes of one Pod": {func(x *scene) {
			x.add(history.Record{Processes: &history.Processes{Stamp: stamp(6), Processes: []history.Process{{PID: 1, State: "S", Pod: "pod-1"}, {PID: 2, State: "S", Pod: "pod-1"}}}})
		}, "", nil, false},
	})
}

func TestNoOrphans(t *testing.T) {
	orphan := func(x *scene) {
		x.tables["old again"].VMs = append(x.tables["old again"].VMs, machine("15", "uo", "v1-o", "RUNNING"))
	}
	hold(t, NoOrphans, map[string]mutation{
		"a VM": {orphan, "VM proxy-15", nil, false},
		"a VM for now": {func(x *scene) {
			orphan(x)
			x.table("collected", 210, 209, machine("12", "uv", "v1-b", "RUNNING"), machine("14", "uo2", "v1-o", "RUNNING"))
		}, "", nil, false},
		"not at its end yet": {func(x *scene) { orphan(x); x.withoutStages(history.StageSettled, history.StageEnd) }, "", nil, false},
		"a Pod": {func(x *scene) {
			x.child("p", 126, history.Object{Kind: "Pod", Name: "default/p", UID: "pod-9", OwnerUID: "uo", ResourceVersion: "70"})
		}, "Pod default/p", nil, false},
		"a ProxyProbe": {func(x *scene) { x.probe("uo", 126, "") }, "ProxyProbe", nil, false},
		"a process": {func(x *scene) {
			x.add(history.Record{Processes: &history.Processes{Stamp: stamp(250), Processes: []history.Process{{PID: 8, State: "S", VM: "proxy-13-13"}, {PID: 1, State: "S", Pod: "pod-1"}}}})
		}, "process 8", nil, false},
		"a zombie": {func(x *scene) {
			x.add(history.Record{Processes: &history.Processes{Stamp: stamp(250), Processes: []history.Process{{PID: 8, State: "Z", VM: "proxy-13-13"}, {PID: 9, State: "S", VM: "proxy-12-12"}}}})
		}, "", nil, false},
	})
}

// withoutStages takes stages out of the scene.
func (x *scene) withoutStages(names ...history.StageName) {
	kept := x.records[:0]
	for _, r := range x.records {
		drop := false
		for _, n := range names {
			drop = drop || r.Stage != nil && r.Stage.Name == n
		}
		if !drop {
			kept = append(kept, r)
		}
	}
	x.records = kept
}

func TestNotDeleted(t *testing.T) {
	noEdit := func(x *scene) { // the VM ends without a request
		x.acts["edit vm"].Failed = true
		x.objects["vm edited"].Wanted = wanted("v1-a", "z", "")
		x.objects["vm again"].Wanted, x.objects["vm again"].SpecHash = wanted("v1-a", "z", ""), "v1-a"
		for _, name := range []string{"new", "old stops", "old gone", "old again"} {
			for i := range x.tables[name].VMs {
				if vm := &x.tables[name].VMs[i]; vm.ID == "12" {
					vm.SpecHash = "v1-a"
				}
			}
		}
	}
	podGoes := func(x *scene) {
		x.child("pod goes", 30, history.Object{Kind: "Pod", Change: history.Modified, Deleting: true, Name: "default/proxy-p", UID: "pod-1", OwnerUID: "up", SpecHash: "v1-p", Phase: "Running", ResourceVersion: "25"})
		x.child("pod stays", 31, history.Object{Kind: "Pod", Change: history.Modified, Name: "default/proxy-p", UID: "pod-1", OwnerUID: "up", SpecHash: "v1-p", Phase: "Running", ResourceVersion: "26"})
	}
	hold(t, NotDeleted, map[string]mutation{
		"a VM without a reason":  {noEdit, "VM 11", nil, false},
		"a Pod without a reason": {podGoes, "Pod pod-1", nil, false},
		"a VM that was preempted": {func(x *scene) {
			noEdit(x)
			x.tables["leaves"].VMs[0].State = "TERMINATED"
		}, "", nil, false},
		"a Pod that failed": {func(x *scene) { podGoes(x); x.objects["pod"].Phase = "Failed" }, "", nil, false},
		"a Pod that the campaign deleted": {func(x *scene) {
			podGoes(x)
			x.add(history.Record{Fault: &history.Fault{Stamp: stamp(30), ID: 7, Family: history.Terminated, Subject: "default/pod", UID: "up", From: s(29.9), To: s(30)}})
		}, "", nil, false},
		"after another one's Pod was deleted": {func(x *scene) {
			podGoes(x)
			x.add(history.Record{Fault: &history.Fault{Stamp: stamp(30), ID: 7, Family: history.Terminated, Subject: "default/vm", UID: "uv", From: s(29.9), To: s(30)}})
		}, "Pod pod-1", nil, false},
		"before it ran": {func(x *scene) { noEdit(x); x.tables["up"].VMs[0].State = "STAGING" }, "", nil, false},
		"after an edit that was taken back": {func(x *scene) {
			noEdit(x)
			x.act("edit", 98, history.Edit, "default/vm", "uv", wanted("v1-b", "z", ""))
			x.act("back", 99, history.Edit, "default/vm", "uv", wanted("v1-a", "z", ""))
		}, "", nil, false},
		"after an edit in place": {func(x *scene) {
			noEdit(x)
			x.act("edit", 98, history.Edit, "default/vm", "uv", wanted("v1-a", "z", ""))
		}, "VM 11", nil, false},
		"the stand-in was killed": {func(x *scene) {
			noEdit(x)
			x.add(history.Record{Fault: &history.Fault{Stamp: stamp(102), ID: 8, Family: history.Kill, Subject: "gcestandin", From: s(101), To: s(102)}})
		}, "", nil, false},
	})
}

func TestFinalizers(t *testing.T) {
	newPod := func(x *scene, at float64) {
		x.add(history.Record{Fault: &history.Fault{Stamp: stamp(122), ID: 8, Family: history.Kill, Subject: "apiserver", From: s(120), To: s(122)}})
		x.child("p", at, history.Object{Kind: "Pod", Name: "default/p", UID: "pod-9", OwnerUID: "uo", Phase: "Running", ResourceVersion: "9"})
	}
	collected := func(x *scene) {
		x.child("p gone", 154, history.Object{Kind: "Pod", Change: history.Deleted, Name: "default/p", UID: "pod-9", OwnerUID: "uo", ResourceVersion: "53"})
	}
	hold(t, Finalizers, map[string]mutation{
		"before the VM":                     {func(x *scene) { x.objects["old gone"].At = s(123) }, "its VM existed 900ms later", nil, false},
		"a moment before it was seen to go": {func(x *scene) { x.objects["old gone"].At = s(123.95) }, "", nil, false},
		"before the Pod": {func(x *scene) {
			x.child("p", 3, history.Object{Kind: "Pod", Name: "default/p", UID: "pod-9", OwnerUID: "uo", Phase: "Running", ResourceVersion: "9"})
			x.child("p gone", 124, history.Object{Kind: "Pod", Change: history.Deleted, Name: "default/p", UID: "pod-9", OwnerUID: "uo", ResourceVersion: "53"})
		}, "gone before its Pod", nil, false},
		"after the Pod, seen the other way round": {func(x *scene) {
			x.child("p", 3, history.Object{Kind: "Pod", Name: "default/p", UID: "pod-9", OwnerUID: "uo", Phase: "Running", ResourceVersion: "9"})
			x.child("p gone", 125.2, history.Object{Kind: "Pod", Change: history.Deleted, Name: "default/p", UID: "pod-9", OwnerUID: "uo", ResourceVersion: "51"})
		}, "", nil, false},
		"before a Pod that was just made after an outage": {func(x *scene) { newPod(x, 121); collected(x) }, "garbage collector", nil, true},
		"before a Pod that was made before the outage":    {func(x *scene) { newPod(x, 119); collected(x) }, "gone before its Pod", nil, false},
		"long after the outage": {func(x *scene) {
			newPod(x, 121)
			collected(x)
			x.objects["old gone"].At = s(153)
		}, "gone before its Pod", nil, false},
		"before a Pod that was just made, and stays": {func(x *scene) { newPod(x, 121) }, "gone before its Pod", []Promise{NoOrphans}, false},
		"the Pod stays": {func(x *scene) {
			x.child("p", 3, history.Object{Kind: "Pod", Name: "default/p", UID: "pod-9", OwnerUID: "uo", Phase: "Running", ResourceVersion: "9"})
		}, "gone before its Pod", []Promise{NoOrphans}, false},
	})
}
