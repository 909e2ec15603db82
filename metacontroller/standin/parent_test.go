package standin

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// These tests show behaviour that surprises authors of hooks. They pass against the
// real Metacontroller as well.

func (c *cluster) phase(name string) string {
	c.t.Helper()
	phase, _, _ := unstructured.NestedString(c.get(proxies, name).Object, "status", "phase")
	return phase
}

// The finalize hook is called again after it has returned finalized while the parent
// has another finalizer; its children are not reconciled any more.
func TestFinalizeIsCalledAfterFinalized(t *testing.T) {
	c := newCluster(t)
	c.hook.on("sync", func(call) reply { return answer("Ready", 0, podOf("px")) })
	c.hook.on("finalize", func(call) reply {
		return reply{body: `{"status":{"phase":"Deleting"},"children":[],"finalized":true}`}
	})
	c.run(1)
	c.createProxy("px")
	c.eventually("a Pod", func() bool { return c.get(pods, "px") != nil })
	c.patch(proxies, "px", `{"metadata":{"finalizers":["example.com/wait","metacontroller.io/compositecontroller-proxies"]}}`)
	c.delete(proxies, "px")
	c.eventually("our finalizer is gone", func() bool {
		return len(c.get(proxies, "px").GetFinalizers()) == 1
	})
	c.eventually("another call", func() bool { return len(c.hook.got("finalize")) > 1 })
	require.NotNil(t, c.get(pods, "px"), "finalized means that its children are not ours any more")
}

// The status is written although the API server rejects a child. The hook sees only
// that the child is still missing.
func TestStatusIsWrittenAlthoughAChildIsRejected(t *testing.T) {
	c := newCluster(t)
	invalid := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"px"},"spec":{"containers":[]}}`
	c.hook.on("sync", func(call) reply { return answer("Provisioning", 0, invalid, probeOf("px", "one")) })
	c.run(1)
	created := c.createProxy("px")
	c.eventually("status and the other child", func() bool { return c.phase("px") == "Provisioning" && c.get(probes, "px") != nil })
	c.eventually("retries with the child still missing", func() bool { return len(c.syncsOf("px")) > 3 })
	c.eventually("an event", func() bool {
		return strings.Contains(strings.Join(c.eventsOf(created), "\n"), "spec.containers: Required value")
	})
	for _, sync := range c.syncsOf("px") {
		require.Empty(t, sync.childKeys("Pod.v1"))
	}
}

// A 429 without a whole number of seconds in Retry-After is retried at once.
func TestBusyWithoutRetryAfterIsRetriedAtOnce(t *testing.T) {
	c := newCluster(t)
	var calls atomic.Int32
	c.hook.on("sync", func(call) reply {
		if calls.Add(1) > 200 {
			return answer("Ready", 0)
		}
		return reply{code: 429, header: map[string]string{"Retry-After": "0.5"}}
	})
	c.run(1)
	c.createProxy("px")
	c.eventually("200 refusals and a sync", func() bool { return c.phase("px") == "Ready" })
	syncs := c.syncsOf("px")
	require.Less(t, syncs[200].at.Sub(syncs[0].at), patience, "with 0.5 s in between it would take 100 s")
}

// A response with an unknown field changes nothing.
func TestUnknownFieldInResponseFailsTheReconcile(t *testing.T) {
	c := newCluster(t)
	var wrong atomic.Bool
	c.hook.on("sync", func(call) reply {
		if wrong.Load() {
			return reply{body: `{"status":{"phase":"Failed"},"children":[],"resyncAfter":1}`}
		}
		return answer("Ready", 0, podOf("px"))
	})
	c.run(1)
	c.createProxy("px")
	c.eventually("a Pod and a status", func() bool { return c.get(pods, "px") != nil && c.phase("px") == "Ready" })
	wrong.Store(true)
	n := len(c.syncsOf("px"))
	c.annotate("px")
	c.eventually("retries", func() bool { return len(c.syncsOf("px")) > n+2 })
	require.NotNil(t, c.get(pods, "px"))
	require.Equal(t, "Ready", c.phase("px"))
}

// finalized in a sync response removes the finalizer of a parent that is not being
// deleted.
func TestFinalizedInASyncResponseRemovesTheFinalizer(t *testing.T) {
	c := newCluster(t)
	c.hook.on("sync", func(call) reply { return reply{body: `{"status":{"phase":"Ready"},"children":[],"finalized":true}`} })
	c.run(1)
	c.createProxy("px")
	c.eventually("no finalizer", func() bool { return c.phase("px") == "Ready" && len(c.get(proxies, "px").GetFinalizers()) == 0 })
}
