package check

import (
	"testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

func TestNotStuck(t *testing.T) {
	hold(t, NotStuck, map[string]mutation{
		"a Proxy": {func(x *scene) {
			o := x.objects["old ready again"]
			o.Deleting, o.Finalizers = true, []string{"f"}
		}, "finalizers [f]", nil, false},
		"a Pod":                              {func(x *scene) { x.objects["pod"].Deleting, x.objects["pod"].Phase = true, "Failed" }, "the Pod is still being deleted", []Promise{Converged}, false},
		"a VM":                               {func(x *scene) { x.tables["old again"].VMs[1].State = "STOPPING" }, "the VM is still stopping", []Promise{NotDeleted}, false},
		"a deletion that was lost":           {func(x *scene) { x.act("d", 140, history.Delete, "default/old", "uo2", nil) }, "without a deletion timestamp", nil, false},
		"a deletion that perhaps never came": {func(x *scene) { x.act("d", 140, history.Delete, "default/old", "uo2", nil).Uncertain = true }, "", nil, false},
	})
}

func TestConverged(t *testing.T) {
	change := func(name string, f func(o *history.Object)) func(*scene) {
		return func(x *scene) { f(x.objects[name]) }
	}
	hold(t, Converged, map[string]mutation{
		"the status is about an old spec": {change("vm again", func(o *history.Object) { o.ObservedGeneration = 1 }), "observedGeneration is 1", nil, false},
		"the hash":                        {change("vm again", func(o *history.Object) { o.SpecHash = "v1-a" }), "status.specHash is v1-a", nil, false},
		"the VM's hash":                   {func(x *scene) { x.tables["new"].VMs[0].SpecHash = "v1-z" }, "the VM's spec hash is v1-z", nil, false},
		"the VM's zone":                   {func(x *scene) { x.tables["new"].VMs[0].Zone = "y" }, "the VM's zone is y", nil, false},
		"the port":                        {change("vm again", func(o *history.Object) { o.Endpoint = "127.2.0.2:1" }), "status.port is 1", nil, false},
		"the instance":                    {change("vm again", func(o *history.Object) { o.InstanceID = "11" }), "status.instanceID is 11", nil, false},
		"the Pod's hash":                  {change("pod", func(o *history.Object) { o.SpecHash = "v1-z" }), "the Pod's spec hash", nil, false},
		"no instance":                     {func(x *scene) { x.table("none", 210, 209, machine("14", "uo2", "v1-o", "RUNNING")) }, "the number of instances is 0", nil, false},
		"the endpoint":                    {change("ext lives", func(o *history.Object) { o.Endpoint = podAt }), "status' address", nil, false},
		"not provisioned": {change("vm again", func(o *history.Object) {
			o.Conditions[0] = history.Condition{Type: "Provisioned", Status: "False", Reason: "OutOfCapacity", Message: "zone a"}
		}), "Provisioned is False and should be True: OutOfCapacity: zone a", nil, false},
		"no probe":                      {func(x *scene) { x.probes["up"].Change = history.Deleted }, "there is no ProxyProbe", nil, false},
		"the probe's address":           {func(x *scene) { x.probes["up"].Endpoint = "" }, "the ProxyProbe's address", nil, false},
		"a Proxy that is not there":     {func(x *scene) { x.act("c", 140, history.Create, "default/lost", "ul", nil) }, "should exist", nil, false},
		"a Proxy that was not made":     {func(x *scene) { x.act("c", 140, history.Create, "default/lost", "", nil).Failed = true }, "", nil, false},
		"a Proxy that was perhaps made": {func(x *scene) { x.act("c", 140, history.Create, "default/lost", "", nil).Uncertain = true }, "", nil, false},
		"nothing is checked before the end": {func(x *scene) {
			x.objects["vm again"].ObservedGeneration = 1
			x.withoutStages(history.StageSettled, history.StageEnd)
		}, "", nil, false},
	})
}

func TestStatusTrue(t *testing.T) {
	hold(t, StatusTrue, map[string]mutation{
		"Ready and dead":      {func(x *scene) { x.truth("dies again", 220, history.Hanging) }, "Ready, and its proxy is hanging", nil, false},
		"dead for a moment":   {func(x *scene) { x.truth("dies again", 290, history.Dead) }, "", nil, false},
		"not Ready and alive": {func(x *scene) { x.objects["ext lives"].Phase = "Unhealthy" }, "Unhealthy, and its proxy works", nil, false},
		"not Ready for a moment": {func(x *scene) {
			x.objects["ext lives"].Phase = "Unhealthy"
			x.truths["lives"].At = s(290)
			x.objects["ext lives"].Conditions[1].Status = "False"
		}, "", nil, false},
		"healthy while dead": {func(x *scene) { x.truths["lives"].At = s(96) }, "the proxy is dead since 1m0s", nil, false},
	})
}
