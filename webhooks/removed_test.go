package webhooks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func TestRemoved(t *testing.T) {
	o := observationOf(proxytest.Managed())
	o.Instance, o.Probe = runningPod(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
	o.Strays = []proxy.Stray{
		{Object: identity("v1", "Pod", "crawl", "old")},
		{Object: identity("v1", "Pod", "crawl", "older"), Terminating: true},
	}
	name := v1alpha1.InstanceName(o.Proxy.UID)
	pod, probe, old := identity("v1", "Pod", "crawl", name), identity("x", "ProxyProbe", "crawl", "fra-1"), o.Strays[0].Object
	answerWith := func(children ...*unstructured.Unstructured) *metacontroller.Response {
		return &metacontroller.Response{Children: children}
	}
	assert.Equal(t, []observedChild{{"Pod", name, false}, {"ProxyProbe", "fra-1", false}, {"Pod", "old", true}}, deleted(o, answerWith()))
	assert.Equal(t, []observedChild{{"ProxyProbe", "fra-1", false}}, deleted(o, answerWith(pod, old)))
	assert.Empty(t, deleted(o, answerWith(pod, probe, old)))

	o.Instance.Terminating = true
	assert.Equal(t, []observedChild{{"ProxyProbe", "fra-1", false}, {"Pod", "old", true}}, deleted(o, answerWith()), "what goes already is nobody's doing")
}

func TestKeepingListsNothingThatIsGoing(t *testing.T) {
	o := observationOf(proxytest.Managed())
	o.Provider, o.Instance = nil, runningPod()
	o.Instance.Terminating = true
	o.Strays = []proxy.Stray{{Object: identity("v1", "Pod", "crawl", "older"), Terminating: true}}
	o.Wanted = o.Want()
	d, err := proxy.Decide(o)
	require.NoError(t, err)
	children, err := fixtureHooks().children(o, &d)
	require.NoError(t, err)
	assert.Empty(t, children)
}

// A stray ProxyProbe is listed with its spec: under the update method InPlace
// its name alone would mean that the spec is to go.
func TestStraysAreKeptWhole(t *testing.T) {
	probe, err := decodeStray(probeKind, "crawl/x", []byte(`{"apiVersion":"crawl.example.com/v1alpha1","kind":"ProxyProbe","metadata":{"namespace":"crawl","name":"x","uid":"u","labels":{"controller-uid":"y"}},"spec":{"host":"h","port":1},"status":{"verdict":"Healthy"}}`))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{
		"apiVersion": "crawl.example.com/v1alpha1", "kind": "ProxyProbe",
		"metadata": map[string]any{"namespace": "crawl", "name": "x"},
		"spec":     map[string]any{"host": "h", "port": int64(1)},
	}, probe.Object.Object)

	pod, err := decodeStray(podKind, "crawl/x", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"crawl","name":"x","deletionTimestamp":"2026-11-29T11:59:59Z"},"spec":{"nodeName":"n"}}`))
	require.NoError(t, err)
	assert.True(t, pod.Terminating)
	assert.NotContains(t, pod.Object.Object, "spec")
}
