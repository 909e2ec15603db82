package webhooks

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func TestLifeOfAManagedProxy(t *testing.T) {
	w, h := &world{proxy: proxytest.Managed()}, fixtureHooks()
	ready := func() bool { return w.proxy.Status.Phase == v1alpha1.PhaseReady }
	w.until(t, h, "Ready", ready)
	require.Equal(t, int32(3128), w.proxy.Status.Port)

	w.proxy.Spec.Port, w.proxy.Generation = 3129, 4
	w.until(t, h, "replaced", func() bool { return ready() && w.proxy.Status.Port == 3129 })
	require.Equal(t, 2, w.pods)
	require.Equal(t, "pod-2", w.proxy.Status.InstanceID)

	w.pod.Status.Phase = corev1.PodFailed // evicted
	w.until(t, h, "healed", func() bool { return ready() && w.pods == 3 })

	w.finalizing = true
	w.until(t, h, "gone", func() bool { return w.gone })
	require.Nil(t, w.pod)
	require.Nil(t, w.probe)
}

func TestAtRestNothingMoves(t *testing.T) {
	w, h := &world{proxy: proxytest.Managed()}, fixtureHooks()
	w.until(t, h, "Ready", func() bool { return w.proxy.Status.Phase == v1alpha1.PhaseReady })
	body := request{proxy: w.proxy, pods: []*corev1.Pod{w.pod}, probes: []*v1alpha1.ProxyProbe{w.probe}}.body(t)
	first := answerTo(t, h, "sync", body)
	w.sync(t, h)
	body = request{proxy: w.proxy, pods: []*corev1.Pod{w.pod}, probes: []*v1alpha1.ProxyProbe{w.probe}}.body(t)
	require.Equal(t, string(first), string(answerTo(t, h, "sync", body)))
}

// Neither a release that makes other Pods nor another provider config replaces
// what runs: the spec hash says what an instance was made from, and that is the
// Proxy alone.
func TestAnotherTemplateReplacesNothing(t *testing.T) {
	w, h := &world{proxy: proxytest.Managed()}, fixtureHooks()
	w.until(t, h, "Ready", w.leasable)
	before := w.proxy.Status.DeepCopy()

	o := testOptions()
	k := o.Providers["pods"].Pods
	k.Image, k.CPU, k.AllowPorts = "registry.example.com/squid:6.1", resource.MustParse("2"), []int{443}
	upgraded := New(o)
	for range 5 {
		w.round(t, upgraded)
		require.Equal(t, *before, w.proxy.Status)
		require.Equal(t, 1, w.pods)
	}
	w.pod.Status.Phase = corev1.PodFailed
	w.until(t, upgraded, "healed", func() bool { return w.leasable() && w.pods == 2 })
	require.Equal(t, k.Image, w.pod.Spec.Containers[0].Image, "the next one is made anew")
}

// readyFleet are that many Proxies of a kind, all Ready, with those Secrets.
func readyFleet(t *testing.T, h *Hooks, size int, proxy func() *v1alpha1.Proxy, secrets ...*corev1.Secret) []*world {
	t.Helper()
	fleet := make([]*world, size)
	for i := range fleet {
		p := proxy()
		p.UID, p.Name = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("fra-%d", i)
		fleet[i] = &world{proxy: p, secrets: secrets}
		fleet[i].until(t, h, "Ready", fleet[i].leasable)
	}
	return fleet
}

// An edit of the whole fleet goes through it piece by piece: never more than the
// budget is away, and in the end everything is new.
func TestFleetIsReplacedWithinTheBudget(t *testing.T) {
	const size, limit = 10, 2
	h := fixtureHooks()
	fleet := readyFleet(t, h, size, proxytest.Managed)
	for _, w := range fleet {
		w.proxy.Spec.Port = 3129
	}
	replaced := func() (n int) {
		for _, w := range fleet {
			if w.proxy.Status.Phase == v1alpha1.PhaseReady && w.proxy.Status.Port == 3129 {
				n++
			}
		}
		return n
	}
	for range 100 {
		away := 0
		for _, w := range fleet {
			w.round(t, h)
			if w.proxy.Status.Phase != v1alpha1.PhaseReady {
				away++
			}
		}
		require.LessOrEqual(t, away, limit)
		if replaced() == size {
			return
		}
	}
	require.Fail(t, "not all were replaced", "%d of %d", replaced(), size)
}

// A restarted process goes on with what the last one began. It meets those
// Proxies first, since they are polled far more often than those at rest.
func TestFleetBudgetSurvivesARestart(t *testing.T) {
	h := fixtureHooks()
	fleet := readyFleet(t, h, 10, proxytest.Managed)
	for _, w := range fleet {
		w.proxy.Spec.Port = 3129
		w.sync(t, h)
	}
	require.Equal(t, 2, h.budget.states()["pods"].underWay)

	for range 3 { // crashes on every round
		h = fixtureHooks()
		for _, w := range fleet {
			w.sync(t, h)
		}
		require.Equal(t, budgetState{seen: 10, underWay: 2, limit: 2, ready: true}, h.budget.states()["pods"])
	}
}

// Two syncs of one Proxy before the first status is visible: the second repeats
// the first.
func TestStaleStatusRepeatsTheAnswer(t *testing.T) {
	w, h := &world{proxy: proxytest.Managed()}, fixtureHooks()
	w.until(t, h, "Ready", func() bool { return w.proxy.Status.Phase == v1alpha1.PhaseReady })
	w.proxy.Spec.Port = 3129
	body := request{proxy: w.proxy, pods: []*corev1.Pod{w.pod}, probes: []*v1alpha1.ProxyProbe{w.probe}}.body(t)
	first := answerTo(t, h, "sync", body)
	for range 3 {
		require.True(t, bytes.Equal(first, answerTo(t, h, "sync", body)))
	}
}
