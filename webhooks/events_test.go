package webhooks

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func recordingHooks() (*Hooks, *fakeRecorder) {
	o, f := testOptions(), &fakeRecorder{}
	o.CloudInitSecrets, o.Events = true, f
	return New(o), f
}

func TestEventsThroughALife(t *testing.T) {
	h, f := recordingHooks()
	w := &world{proxy: proxytest.Managed()}
	w.until(t, h, "Ready", w.leasable)
	assert.Equal(t, w.proxy.UID, f.about[0].UID)
	assert.Equal(t, []string{proxy.EventCreated, proxy.EventHealthy}, f.take())

	w.proxy.Spec.Port, w.proxy.Generation = 3129, 4
	w.until(t, h, "replaced", func() bool { return w.leasable() && w.proxy.Status.Port == 3129 })
	assert.Equal(t, []string{v1alpha1.ReasonReplacing, proxy.EventCreated, proxy.EventHealthy}, f.take())

	w.broken = true
	w.until(t, h, "Unhealthy", func() bool { return w.proxy.Status.Phase == v1alpha1.PhaseUnhealthy })
	assert.Equal(t, []string{proxy.EventUnhealthy}, f.take())
	w.broken = false
	w.until(t, h, "Ready again", w.leasable)
	assert.Equal(t, []string{proxy.EventHealthy}, f.take())

	w.evict()
	w.until(t, h, "healed", func() bool { return w.leasable() && w.pods == 3 })
	assert.Equal(t, []string{proxy.EventInstanceTerminated, proxy.EventCreated, proxy.EventHealthy}, f.take())

	for range 5 {
		w.round(t, h)
	}
	assert.Empty(t, f.take(), "no Events at rest")
	w.finalizing = true
	w.until(t, h, "gone", func() bool { return w.gone })
	assert.Empty(t, f.take())
}

// Metacontroller could not write the status, and calls again and again.
func TestLostStatusSendsItsEventOnce(t *testing.T) {
	h, f := recordingHooks()
	w := &world{proxy: proxytest.Managed()}
	w.until(t, h, "Ready", w.leasable)
	f.take()
	w.broken = true
	w.prober()
	body := request{proxy: w.proxy, pods: []*corev1.Pod{w.pod}, probes: []*v1alpha1.ProxyProbe{w.probe}}.body(t)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { answerTo(t, h, "sync", body) })
	}
	wg.Wait()
	assert.Equal(t, []string{proxy.EventUnhealthy}, f.take())

	restarted, g := recordingHooks()
	answerTo(t, restarted, "sync", body)
	assert.Equal(t, []string{proxy.EventUnhealthy}, g.take(), "a new process tells it once more")
}

// The Pod's deletion is observed with a stale status, which lacks our replacement:
// it was not deleted by hand.
func TestReplacementWithAStaleStatusIsNoForeignDeletion(t *testing.T) {
	h, f := recordingHooks()
	w := &world{proxy: proxytest.Managed()}
	w.until(t, h, "Ready", w.leasable)
	f.take()
	stale := w.proxy.Status
	w.proxy.Spec.Port, w.proxy.Generation = 3129, 4
	w.sync(t, h)
	require.NotNil(t, w.pod.DeletionTimestamp)
	assert.Equal(t, []string{v1alpha1.ReasonReplacing}, f.take())
	w.proxy.Status = stale
	w.sync(t, h)
	w.pod = nil
	w.proxy.Status = stale
	w.sync(t, h)
	assert.Empty(t, f.take())
}

// A condition that stays True sends another Event when the same transition happens again.
func TestRecurringReasonSendsAnotherEvent(t *testing.T) {
	h, f := recordingHooks()
	secret := bootSecret("v1")
	w := &world{proxy: proxytest.SecretRef(), secrets: []*corev1.Secret{secret}}
	w.until(t, h, "Ready", w.leasable)
	f.take()
	for i := range 3 {
		secret.Labels = nil
		w.proxy.ResourceVersion = fmt.Sprint(10 * i)
		w.round(t, h)
		secret.Labels = map[string]string{v1alpha1.LabelCloudInit: v1alpha1.ValueTrue}
		w.proxy.ResourceVersion = fmt.Sprint(10*i + 5)
		w.round(t, h)
		assert.Equal(t, []string{v1alpha1.ReasonCloudInitError, proxy.EventRecovered}, f.take())
	}
}

func TestEventsReferToTheUIDOfTheirProxy(t *testing.T) {
	h, f := recordingHooks()
	for i := range 3 {
		p := proxytest.Managed() // under the same name, each after the other
		p.UID = types.UID(fmt.Sprintf("uid-%d", i))
		w := &world{proxy: p}
		w.until(t, h, "Ready", w.leasable)
		for _, about := range f.about {
			assert.Equal(t, corev1.ObjectReference{
				APIVersion: "crawl.example.com/v1alpha1", Kind: "Proxy", Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			}, about)
		}
		assert.Equal(t, []string{proxy.EventCreated, proxy.EventHealthy}, f.take())
	}
}

// What is remembered has an end, however many Proxies there are.
func TestSentEventsCacheIsBounded(t *testing.T) {
	f := &fakeRecorder{}
	s := newEventSender(f)
	p := proxytest.Managed()
	for i := range 2 * maxSent {
		p.UID = types.UID(fmt.Sprint(i))
		s.send(p, []proxy.Event{{ID: "x"}})
	}
	assert.Equal(t, maxSent, s.sent.Len())
	require.Len(t, f.events, 2*maxSent)
	s.send(p, []proxy.Event{{ID: "x"}})
	assert.Len(t, f.events, 2*maxSent)
}

// Whatever the request is: no Event twice, none without words.
func TestEventsOfGeneratedRequests(t *testing.T) {
	sent := 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		h, f := recordingHooks()
		if c.cloud != nil {
			h.adapter.api = c.cloud
		}
		first := answerTo(t, h, c.hook, c.body)
		events := f.events
		for _, e := range events {
			require.NotEmpty(t, e.Reason)
			require.NotEmpty(t, e.Message, e.Reason)
			require.NotContains(t, e.Message, "CANARY")
			sent++
		}
		f.take()
		sameBytes(t, first, answerTo(t, h, c.hook, c.body), "Events change no answer")
		require.Empty(t, f.take(), "sent once")
	}, "sync", "finalize")
	require.Greater(t, sent, 100)
}
