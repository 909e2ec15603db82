package webhooks

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func TestProbeChildGolden(t *testing.T) {
	o := observationOf(proxytest.Managed())
	o.Proxy.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
	child, err := probeChild(o.Proxy, probeSpec(t, o))
	require.NoError(t, err)
	golden(t, "children/probe.json", indented(t, child))
}

func TestProbeChildWritesDurationsAsTheCRDWantsThem(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "1s", 30 * time.Second: "30s", time.Minute: "1m0s", time.Hour: "1h0m0s",
		1500 * time.Millisecond: "1500ms", 100 * time.Millisecond: "100ms", 61*time.Second + time.Millisecond: "61001ms",
	} {
		o := observationOf(proxytest.Managed())
		o.Proxy.Spec.HealthCheck.Interval = metav1.Duration{Duration: d}
		child, err := probeChild(o.Proxy, probeSpec(t, o))
		require.NoError(t, err)
		got, _, err := unstructured.NestedString(child.Object, "spec", "healthCheck", "interval")
		require.NoError(t, err)
		assert.Equal(t, want, got)
		parsed, err := time.ParseDuration(got)
		require.NoError(t, err)
		assert.Equal(t, d, parsed)
	}
}

func TestProbeChildWithoutHealthCheck(t *testing.T) {
	child, err := probeChild(proxytest.Managed(), &v1alpha1.ProxyProbeSpec{InstanceID: "x", Host: "h", Port: 1})
	require.NoError(t, err)
	_, found, err := unstructured.NestedMap(child.Object, "spec", "healthCheck")
	require.NoError(t, err)
	assert.False(t, found)
}

func TestPrune(t *testing.T) {
	in := `{"a":null,"b":{},"c":{"d":{"e":null}},"f":[],"g":[1,{},{"h":null}],"i":"","j":0,"k":false}`
	var v any
	require.NoError(t, json.Unmarshal([]byte(in), &v))
	assert.JSONEq(t, `{"g":[1,{},{}],"i":"","j":0,"k":false}`, string(mustJSON(t, prune(v))))
	assert.Nil(t, prune(map[string]any{"a": map[string]any{}}))
}

func TestKeptPodOnlyNamesIt(t *testing.T) {
	o := observationOf(proxytest.Managed())
	o.Instance = runningPod()
	children, err := fixtureHooks().children(o, &proxy.Decision{Instance: proxy.KeepInstance})
	require.NoError(t, err)
	require.Len(t, children, 1)
	assert.Equal(t, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": v1alpha1.InstanceName(o.Proxy.UID), "namespace": "crawl"},
	}, children[0].Object)
}

func TestVMIsNoChild(t *testing.T) {
	for _, action := range []proxy.InstanceAction{proxy.MakeInstance, proxy.KeepInstance, proxy.RemoveInstance} {
		o := observationOf(proxytest.Cloud())
		o.Provider = &proxy.Provider{Cloud: proxytest.GCP()}
		in, err := proxy.VMInstance(*proxytest.RunningVM())
		require.NoError(t, err)
		o.Instance = in
		children, err := fixtureHooks().children(o, &proxy.Decision{Instance: action})
		require.NoError(t, err)
		assert.Empty(t, children, action)
	}
}

func TestToChildDropsWhatIsNotOurs(t *testing.T) {
	pod := proxytest.Pod(t, proxytest.Managed(), corev1.PodRunning, "10.0.0.1")
	pod.UID = ""
	child, err := toChild(pod)
	require.NoError(t, err)
	assert.NotContains(t, child.Object, "status")
	assert.NotContains(t, child.Object["metadata"], "creationTimestamp")
}
