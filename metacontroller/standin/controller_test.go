package standin

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const probeKind = "ProxyProbe.crawl.example.com/v1alpha1"

func TestLifecycle(t *testing.T) {
	c := newCluster(t)
	c.hook.on("sync", func(got call) reply {
		phase := "Probing"
		if strings.Contains(string(got.Children[probeKind]["default/px"]), `"Healthy"`) {
			phase = "Ready"
		}
		return answer(phase, 0, podOf("px"), probeOf("px", "one"))
	})
	c.hook.on("finalize", func(got call) reply {
		if len(got.Children["Pod.v1"])+len(got.Children[probeKind]) > 0 {
			return reply{body: `{"status":{"phase":"Deleting"},"children":[],"finalized":false,"resyncAfterSeconds":5}`}
		}
		return reply{body: `{"status":{"phase":"Deleting"},"children":[],"finalized":true}`}
	})
	c.run(DefaultWorkers)
	created := c.createProxy("px")

	c.eventually("children and status", func() bool {
		return c.get(pods, "px") != nil && c.get(probes, "px") != nil && c.phase("px") == "Probing"
	})
	pod := c.get(pods, "px")
	require.Equal(t, created.GetUID(), metav1.GetControllerOf(pod).UID)
	require.Equal(t, string(created.GetUID()), pod.GetLabels()[selectorLabel])
	require.Equal(t, []string{"metacontroller.io/compositecontroller-proxies"}, c.get(proxies, "px").GetFinalizers())
	observed, _, _ := unstructured.NestedInt64(c.get(proxies, "px").Object, "status", "observedGeneration")
	require.Equal(t, created.GetGeneration(), observed)

	c.patch(probes, "px", `{"status":{"instanceID":"one","verdict":"Healthy"}}`, "status")
	c.eventually("a child's status reaches the hook", func() bool { return c.phase("px") == "Ready" })

	c.delete(pods, "px")
	c.eventually("a lost child is made again", func() bool {
		again := c.get(pods, "px")
		return again != nil && again.GetUID() != pod.GetUID()
	})

	c.delete(proxies, "px")
	c.eventually("finalized", func() bool { return c.get(proxies, "px") == nil })
	require.Nil(t, c.get(pods, "px"))
	require.Nil(t, c.get(probes, "px"))
	finalizes := c.hook.got("finalize")
	require.True(t, finalizes[0].Finalizing)
	require.NotEmpty(t, finalizes[0].childKeys("Pod.v1"))
	require.Empty(t, finalizes[len(finalizes)-1].childKeys("Pod.v1"), "finalized only when nothing was observed any more")
}

func TestResyncAfterIsNotPostponedByLaterDelays(t *testing.T) {
	const delay = 3 * time.Second // for the annotation to come first on a busy machine
	c := newCluster(t)
	var calls atomic.Int32
	c.hook.on("sync", func(call) reply {
		switch calls.Add(1) {
		case 1:
			return answer("Provisioning", delay.Seconds())
		case 2:
			return answer("Provisioning", 600)
		}
		return answer("Provisioning", 0)
	})
	c.run(1)
	c.createProxy("px")
	c.eventually("the first sync", func() bool { return calls.Load() >= 1 })
	c.annotate("px")
	c.eventually("the sync by annotation", func() bool { return calls.Load() >= 2 })
	c.eventually("the sync by timer", func() bool { return calls.Load() >= 3 })

	syncs := c.syncsOf("px")
	require.Less(t, syncs[1].at.Sub(syncs[0].at), delay, "the second was the annotation's")
	took := syncs[2].at.Sub(syncs[0].at)
	require.GreaterOrEqual(t, took, delay)
	require.Less(t, took, delay+patience, "600 s did not postpone it")
	t.Logf("asked for %s, came after %s", delay, took)
}

func TestRetryAfterIsHonoured(t *testing.T) {
	c := newCluster(t)
	var calls atomic.Int32
	c.hook.on("sync", func(call) reply {
		if calls.Add(1) <= 3 {
			return reply{code: 429, header: map[string]string{"Retry-After": "1"}}
		}
		return answer("Ready", 0)
	})
	c.run(DefaultWorkers)
	created := c.createProxy("px")
	c.eventually("three refusals and a sync", func() bool { return calls.Load() >= 4 })
	syncs := c.syncsOf("px")
	for i := range 3 {
		require.GreaterOrEqual(t, syncs[i+1].at.Sub(syncs[i].at), time.Second)
	}
	require.Empty(t, c.eventsOf(created), "being busy leaves no event")
}

// eventsOf are the messages of the events about an object.
func (c *cluster) eventsOf(obj *object) []string {
	c.t.Helper()
	list, err := c.in(events).List(c.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(obj.GetUID())})
	require.NoError(c.t, err)
	var out []string
	for _, event := range list.Items {
		out = append(out, event.Object["reason"].(string)+": "+event.Object["message"].(string))
	}
	return out
}

// If the name of a child exists already, its create is ignored without an Event, and
// the deletion of the other object does not requeue the parent.
func TestCreateOfAnExistingNameIsRetriedOnlyWhenTheParentChanges(t *testing.T) {
	c := newCluster(t)
	c.create(pods, podOf("px"))
	c.hook.on("sync", func(got call) reply {
		if strings.Contains(string(got.Parent), `"canary"`) {
			return answer("Provisioning", 0)
		}
		return answer("Provisioning", 0, podOf("px"))
	})
	c.run(1)
	canary := c.createProxy("canary")
	created := c.createProxy("px")
	c.eventually("status", func() bool { return c.phase("px") == "Provisioning" })
	require.Empty(t, c.get(pods, "px").GetOwnerReferences(), "not ours, and not adopted without our label")
	require.Empty(t, c.eventsOf(created))
	before := len(c.syncsOf("px"))

	c.delete(pods, "px")
	c.eventually("the name is free", func() bool { return c.get(pods, "px") == nil })
	// A later event of the same watch, with one worker: a requeue by the deletion
	// would have been processed before.
	canarySyncs := len(c.syncsOf("canary"))
	c.create(pods, strings.Replace(podOf("orphan"), `"name":"orphan"`, `"name":"orphan","labels":{"controller-uid":"`+string(canary.GetUID())+`"}`, 1))
	c.eventually("the canary syncs", func() bool { return len(c.syncsOf("canary")) > canarySyncs })
	require.Len(t, c.syncsOf("px"), before)
	require.Nil(t, c.get(pods, "px"))

	c.annotate("px")
	c.eventually("woken, it gets its Pod", func() bool { return c.get(pods, "px") != nil })
}

func TestStatusChangeDoesNotReconcile(t *testing.T) {
	c := newCluster(t)
	c.hook.on("sync", func(call) reply { return answer("Ready", 0) })
	c.run(1)
	c.createProxy("px")
	c.eventually("status", func() bool { return c.phase("px") == "Ready" })
	before := len(c.syncsOf("px"))
	c.patch(proxies, "px", `{"status":{"phase":"Failed"}}`, "status")
	c.createProxy("canary")
	c.eventually("the canary, seen later by the same watch, syncs", func() bool { return len(c.syncsOf("canary")) > 0 })
	require.Len(t, c.syncsOf("px"), before)

	c.annotate("px")
	c.eventually("an annotation syncs and repairs the status", func() bool { return c.phase("px") == "Ready" })
	require.Len(t, c.syncsOf("px"), before+1)
}

func TestFailingHookChangesNothingAndBacksOff(t *testing.T) {
	c := newCluster(t)
	var down atomic.Bool
	c.hook.on("sync", func(call) reply {
		if down.Load() {
			return reply{code: 503, body: "out of order"}
		}
		return answer("Ready", 0, podOf("px"))
	})
	c.run(DefaultWorkers)
	created := c.createProxy("px")
	c.eventually("a Pod", func() bool { return c.get(pods, "px") != nil })
	pod := c.get(pods, "px")

	down.Store(true)
	c.annotate("px")
	failed := len(c.syncsOf("px"))
	c.eventually("retries", func() bool { return len(c.syncsOf("px")) >= failed+6 })
	syncs := c.syncsOf("px")
	last := len(syncs) - 1
	require.GreaterOrEqual(t, syncs[last].at.Sub(syncs[last-1].at), 20*time.Millisecond, "backing off")
	require.Equal(t, pod.GetUID(), c.get(pods, "px").GetUID())
	require.Nil(t, c.get(pods, "px").GetDeletionTimestamp())
	require.Equal(t, "Ready", c.phase("px"), "the old status stays")
	c.eventually("an event says why", func() bool {
		events := strings.Join(c.eventsOf(created), "\n")
		return strings.Contains(events, "SyncError: Sync error: sync hook") && strings.Contains(events, "503") && strings.Contains(events, "out of order")
	})

	down.Store(false)
	c.delete(pods, "px")
	c.eventually("and it recovers by itself", func() bool { return c.get(pods, "px") != nil })
}

func TestNullChildAndNullBody(t *testing.T) {
	c := newCluster(t)
	var dangerous atomic.Value
	dangerous.Store("")
	c.hook.on("sync", func(got call) reply {
		if body := dangerous.Load().(string); body != "" && strings.Contains(string(got.Parent), `"victim"`) {
			return reply{body: body}
		}
		name := "victim"
		if strings.Contains(string(got.Parent), `"bystander"`) {
			name = "bystander"
		}
		return answer("Ready", 0, podOf(name))
	})
	c.run(DefaultWorkers)
	c.createProxy("victim")
	c.createProxy("bystander")
	c.eventually("Pods", func() bool { return c.get(pods, "victim") != nil && c.get(pods, "bystander") != nil })

	if !real() { // which crashes
		dangerous.Store(`{"status":{},"children":[null]}`)
		c.annotate("victim")
		n := len(c.syncsOf("victim"))
		c.eventually("the answer is refused again and again", func() bool { return len(c.syncsOf("victim")) > n+2 })
		require.NotNil(t, c.get(pods, "victim"))
	}

	dangerous.Store(`null`)
	c.annotate("victim")
	c.eventually("null deletes, as it would in a cluster", func() bool { return c.get(pods, "victim") == nil })

	c.delete(pods, "bystander")
	c.eventually("others are served as ever", func() bool { return c.get(pods, "bystander") != nil })
}

// An update of a custom-resource child keeps its status and fields of others.
func TestInPlaceUpdateKeepsFieldsOfOthers(t *testing.T) {
	c := newCluster(t)
	var instance atomic.Value
	instance.Store("one")
	c.hook.on("sync", func(call) reply { return answer("Ready", 0, probeOf("px", instance.Load().(string))) })
	c.run(DefaultWorkers)
	c.createProxy("px")
	c.eventually("a probe", func() bool { return c.get(probes, "px") != nil })
	c.patch(probes, "px", `{"status":{"instanceID":"one","verdict":"Healthy"}}`, "status")
	c.patch(probes, "px", `{"metadata":{"annotations":{"note":"mine"}}}`)

	instance.Store("two")
	c.annotate("px")
	id := func(path ...string) string {
		id, _, _ := unstructured.NestedString(c.get(probes, "px").Object, path...)
		return id
	}
	c.eventually("the new spec", func() bool { return id("spec", "instanceID") == "two" })
	require.Equal(t, "one", id("status", "instanceID"))
	require.Equal(t, "mine", c.get(probes, "px").GetAnnotations()["note"])
	require.Equal(t, "https://www.gstatic.com/generate_204", id("spec", "healthCheck", "probeURL"), "the API server's defaults stay")

	// Another reconcile writes nothing.
	version := c.get(probes, "px").GetResourceVersion()
	n := len(c.syncsOf("px"))
	c.annotate("px")
	c.eventually("a sync", func() bool { return len(c.syncsOf("px")) > n })
	c.annotate("px")
	c.eventually("and another, after whatever the first wrote", func() bool { return len(c.syncsOf("px")) > n+1 })
	require.Equal(t, version, c.get(probes, "px").GetResourceVersion())
}

// The stand-in distinguishes a recreated Proxy from its terminating predecessor of
// the same name.
func TestRecreatedParentOfTheSameName(t *testing.T) {
	c := newCluster(t)
	c.hook.on("sync", func(got call) reply {
		return answer("Provisioning", 0.2, podOf("px-"+string(parse(t, string(got.Parent)).GetUID()[:8])))
	})
	c.hook.on("finalize", func(got call) reply {
		if len(got.Children["Pod.v1"]) > 0 {
			return reply{body: `{"status":{"phase":"Deleting"},"children":[],"finalized":false,"resyncAfterSeconds":0.2}`}
		}
		return reply{body: `{"status":{"phase":"Deleting"},"children":[],"finalized":true}`}
	})
	c.run(DefaultWorkers)
	name := func(obj *object) string { return "px-" + string(obj.GetUID()[:8]) }
	first := c.createProxy("px")
	c.eventually("its Pod", func() bool { return c.get(pods, name(first)) != nil })
	c.delete(proxies, "px")
	c.eventually("gone", func() bool { return c.get(proxies, "px") == nil })
	second := c.createProxy("px")
	c.eventually("the successor's Pod", func() bool { return c.get(pods, name(second)) != nil })
	require.Nil(t, c.get(pods, name(first)))
	require.Equal(t, second.GetUID(), metav1.GetControllerOf(c.get(pods, name(second))).UID)
}

func TestRestartReconcilesEveryParent(t *testing.T) {
	c := newCluster(t)
	c.hook.on("sync", func(call) reply { return answer("Ready", 0, podOf("px")) })
	stop := c.run(DefaultWorkers)
	c.createProxy("px")
	c.eventually("a Pod", func() bool { return c.get(pods, "px") != nil })
	stop()
	n := len(c.syncsOf("px"))
	c.delete(pods, "px")
	c.run(DefaultWorkers)
	c.eventually("every parent is synced at the start", func() bool { return len(c.syncsOf("px")) > n && c.get(pods, "px") != nil })
}

// The creation, update and deletion of a related Secret reconcile its Proxy, and no
// other one.
func TestRelatedSecretsReconcileTheirProxy(t *testing.T) {
	c := newCluster(t)
	c.hook.on("customize", func(got call) reply {
		if len(about([]call{got}, "px")) == 0 {
			return reply{body: `{"relatedResources":[]}`}
		}
		return reply{body: `{"relatedResources":[{"apiVersion":"v1","resource":"secrets","namespace":"default","names":["boot"]}]}`}
	})
	c.hook.on("sync", func(call) reply { return answer("Provisioning", 0) })
	c.run(1)
	c.createProxy("other")
	c.createProxy("px")
	sees := func(what string) func() bool {
		return func() bool {
			syncs := c.syncsOf("px")
			if len(syncs) == 0 {
				return false
			}
			related := syncs[len(syncs)-1].Related["Secret.v1"]
			return related != nil && strings.Contains(string(related["default/boot"]), what)
		}
	}
	c.eventually("the kind is there before any Secret", sees(""))
	others := len(c.syncsOf("other"))

	c.create(secrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"boot"},"stringData":{"a":"one"}}`)
	c.eventually("the Secret", sees("b25l"))
	c.patch(secrets, "boot", `{"stringData":{"a":"two"}}`)
	c.eventually("its rotation", sees("dHdv"))
	c.delete(secrets, "boot")
	c.eventually("its end", func() bool { return !sees("dHdv")() })
	require.Len(t, c.syncsOf("other"), others)
}
