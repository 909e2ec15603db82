package standin

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// boundPod is a Pod on a node: once deleted it terminates until the test, as its
// kubelet, removes it.
func boundPod(name, hash string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","annotations":{"hash":"` + hash + `"}},"spec":{"nodeName":"node1","containers":[{"name":"squid","image":"registry.example.com/squid:1"}],"automountServiceAccountToken":false}}`
}

// kill removes a Pod as its kubelet does.
func (c *cluster) kill(name string) {
	c.t.Helper()
	now := int64(0)
	require.NoError(c.t, c.in(pods).Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// A hook replaces a Pod under OnDelete: it omits the Pod, waits until the Pod is
// gone, and lists the next one under the same name.
func TestReplacementByOmission(t *testing.T) {
	c := newCluster(t)
	var wanted atomic.Value
	wanted.Store("one")
	c.hook.on("sync", func(got call) reply {
		hash := wanted.Load().(string)
		raw, observed := got.Children["Pod.v1"]["default/px"]
		switch {
		case !observed, strings.Contains(string(raw), `"hash":"`+hash+`"`) && !strings.Contains(string(raw), "deletionTimestamp"):
			return answer("Ready", 0, boundPod("px", hash))
		}
		return answer("Replacing", 0)
	})
	c.run(DefaultWorkers)
	c.createProxy("px")
	c.eventually("the first Pod", func() bool { return c.get(pods, "px") != nil && c.phase("px") == "Ready" })
	first := c.get(pods, "px")

	wanted.Store("two")
	c.annotate("px")
	c.eventually("it terminates", func() bool {
		return c.get(pods, "px").GetDeletionTimestamp() != nil && c.phase("px") == "Replacing"
	})
	c.kill("px")
	c.eventually("the second Pod", func() bool { return c.get(pods, "px") != nil && c.phase("px") == "Ready" })
	second := c.get(pods, "px")
	require.NotEqual(t, first.GetUID(), second.GetUID())
	require.Equal(t, "two", second.GetAnnotations()["hash"])

	c.eventually("the hook has seen it", func() bool {
		syncs := c.syncsOf("px")
		return strings.Contains(string(syncs[len(syncs)-1].Children["Pod.v1"]["default/px"]), string(second.GetUID()))
	})
	c.atRest("px")
}

// atRest checks that a Proxy is not reconciled while another one is created and
// reconciled.
func (c *cluster) atRest(name string) {
	c.t.Helper()
	n := len(c.syncsOf(name))
	c.createProxy("canary")
	c.eventually("the canary syncs", func() bool { return len(c.syncsOf("canary")) > 0 })
	require.Len(c.t, c.syncsOf(name), n)
}

// A terminating child that is listed is not updated. It is created again when its
// removal requeues the parent.
func TestTerminatingChildIsCreatedAgainAfterItsRemoval(t *testing.T) {
	c := newCluster(t)
	c.hook.on("sync", func(call) reply { return answer("Ready", 0, boundPod("px", "one")) })
	c.run(DefaultWorkers)
	c.createProxy("px")
	c.eventually("a Pod", func() bool { return c.get(pods, "px") != nil })
	first := c.get(pods, "px").GetUID()
	n := len(c.syncsOf("px"))
	c.delete(pods, "px")
	c.eventually("a sync that sees it terminate", func() bool {
		syncs := c.syncsOf("px")
		return len(syncs) > n && strings.Contains(string(syncs[len(syncs)-1].Children["Pod.v1"]["default/px"]), "deletionTimestamp")
	})
	require.Equal(t, first, c.get(pods, "px").GetUID())
	c.kill("px")
	c.eventually("the next one", func() bool {
		pod := c.get(pods, "px")
		return pod != nil && pod.GetUID() != first
	})
}

func TestFleetIsCreatedAndDeleted(t *testing.T) {
	const fleet = 30 // well above the number of workers
	c := newCluster(t)
	c.hook.on("sync", func(got call) reply {
		name := parse(t, string(got.Parent)).GetName()
		if len(got.Children["Pod.v1"]) == 0 {
			return answer("Provisioning", 30, podOf(name), probeOf(name, "one"))
		}
		return answer("Ready", 30, podOf(name), probeOf(name, "one"))
	})
	c.hook.on("finalize", func(got call) reply {
		done := len(got.Children["Pod.v1"])+len(got.Children[probeKind]) == 0
		return reply{body: fmt.Sprintf(`{"status":{"phase":"Deleting"},"children":[],"finalized":%t,"resyncAfterSeconds":5}`, done)}
	})
	c.run(DefaultWorkers)
	name := func(i int) string { return fmt.Sprintf("px-%d", i) }
	for i := range fleet {
		c.createProxy(name(i))
	}
	began := time.Now()
	for i := range fleet {
		c.eventually(name(i)+" ready", func() bool { return c.phase(name(i)) == "Ready" })
		pod := c.get(pods, name(i))
		require.Equal(t, name(i), metav1.GetControllerOf(pod).Name)
		require.Len(t, about(c.hook.got("customize"), name(i)), 1)
		c.delete(proxies, name(i))
	}
	for i := range fleet {
		c.eventually(name(i)+" gone", func() bool { return c.get(proxies, name(i)) == nil })
		require.Nil(t, c.get(pods, name(i)))
		require.Nil(t, c.get(probes, name(i)))
	}
	t.Logf("%d Proxies came and went in %s", fleet, time.Since(began).Round(time.Millisecond))
}

// A hook call that hangs blocks one worker only, until its timeout.
func TestHangingHookBlocksOneWorkerUntilItsTimeout(t *testing.T) {
	c := newCluster(t)
	c.timeout = time.Second
	free := make(chan struct{})
	var hung atomic.Int32
	c.hook.on("sync", func(got call) reply {
		if len(about([]call{got}, "stuck")) == 1 && hung.Add(1) == 1 {
			<-free
		}
		return answer("Ready", 0)
	})
	t.Cleanup(func() { close(free) })
	c.run(2)
	c.createProxy("stuck")
	c.eventually("a call hangs", func() bool { return hung.Load() > 0 })
	c.createProxy("px")
	c.eventually("others are served", func() bool { return c.phase("px") == "Ready" })
	c.eventually("the call is given up and made again", func() bool { return c.phase("stuck") == "Ready" })
}

// Logs and Events do not contain the content of related Secrets.
func TestSecretsAreNotInLogsAndEvents(t *testing.T) {
	if real() {
		t.Skip("the real one logs request bodies at its highest levels")
	}
	const canary, encoded = "canary-in-a-coal-mine", "Y2FuYXJ5LWluLWEtY29hbC1taW5l"
	c := newCluster(t)
	c.hook.say("customize", `{"relatedResources":[{"apiVersion":"v1","resource":"secrets","namespace":"default","names":["boot"]}]}`)
	var seen atomic.Int32
	c.hook.on("sync", func(got call) reply {
		if strings.Contains(string(got.Related["Secret.v1"]["default/boot"]), encoded) {
			seen.Add(1)
		}
		return reply{code: 500, body: "no"}
	})
	c.create(secrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"boot"},"stringData":{"a":"`+canary+`"}}`)
	stop := c.run(1)
	created := c.createProxy("px")
	c.eventually("the hook sees it", func() bool { return seen.Load() > 2 })
	c.eventually("an event", func() bool { return len(c.eventsOf(created)) > 0 })
	stop()
	for _, text := range append(c.eventsOf(created), c.log.String()) {
		require.NotEmpty(t, text)
		require.NotContains(t, text, canary)
		require.NotContains(t, text, encoded)
	}
}

// manifest is our own with the hooks at the toy's.
func (c *cluster) manifest() *metacontroller.Controller {
	spec := manifestFor(c.t, c.hook.URL)
	if c.timeout > 0 {
		spec.Spec.Hooks.Sync.Webhook.Timeout = &metav1.Duration{Duration: c.timeout}
	}
	return spec
}
