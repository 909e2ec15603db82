package webhooks

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func indented(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	return append(b, '\n')
}

func TestPodChildGolden(t *testing.T) {
	child := podChild(managedProxy(), testProvider(), "v1-hash")
	golden(t, "children/pod.json", indented(t, child))
}

func TestProbeChildGolden(t *testing.T) {
	o := observation(managedProxy())
	o.Proxy.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
	child, err := probeChild(o.Proxy, o.probeOf(runningInstance()))
	require.NoError(t, err)
	golden(t, "children/probe.json", indented(t, child))
}

// All that a health check can say reaches the prober.
func TestProbeChildOfAnEndpointThatSpeaksTLS(t *testing.T) {
	o := observation(externalProxy())
	o.Proxy.Spec.HealthCheck.ProbeURLs = []v1alpha1.ProbeURL{"https://a.example/", "https://b.example/"}
	o.Proxy.Spec.HealthCheck.ExitProof = &v1alpha1.ExitProof{}
	o.Proxy.Spec.HealthCheck.OpenProxyTest = true
	for scheme, want := range map[v1alpha1.Scheme]v1alpha1.Scheme{"": "", v1alpha1.SchemeHTTP: "", v1alpha1.SchemeHTTPS: v1alpha1.SchemeHTTPS} {
		o.Proxy.Spec.Endpoint.Scheme = scheme
		spec := external(&o).Probe
		assert.Equal(t, want, spec.Scheme)
		assert.Equal(t, o.Proxy.Spec.HealthCheck.ProbeURLs, spec.HealthCheck.ProbeURLs)
		assert.Equal(t, v1alpha1.ReportHeaderLeak, spec.HealthCheck.ExitProof.OnHeaderLeak)
		assert.True(t, spec.HealthCheck.OpenProxyTest)
	}
}

func typedPod(t *testing.T, p *v1alpha1.Proxy, provider *Provider) corev1.PodSpec {
	t.Helper()
	child := podChild(p, provider, "v1-hash")
	dec := json.NewDecoder(bytes.NewReader(mustJSON(t, child)))
	dec.DisallowUnknownFields()
	var pod corev1.Pod
	require.NoError(t, dec.Decode(&pod))
	return pod.Spec
}

// The Pod Security Standard "restricted", item by item.
func TestPodChildIsRestricted(t *testing.T) {
	spec := typedPod(t, managedProxy(), testProvider())
	c := spec.Containers[0]
	assert.True(t, *spec.SecurityContext.RunAsNonRoot)
	assert.Equal(t, int64(13), *spec.SecurityContext.RunAsUser)
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type)
	assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	assert.Empty(t, c.SecurityContext.Capabilities.Add)
	assert.False(t, spec.HostNetwork || spec.HostPID || spec.HostIPC)
	assert.False(t, *spec.AutomountServiceAccountToken)
	assert.False(t, *spec.EnableServiceLinks)
	assert.Equal(t, corev1.RestartPolicyAlways, spec.RestartPolicy)
	assert.Empty(t, spec.Tolerations, "with one of its own it would have to spell out the two defaults")
	for _, v := range spec.Volumes {
		assert.NotNil(t, v.EmptyDir, "no volume but emptyDir")
	}
}

func TestPodChildListensOnTheSpecsPort(t *testing.T) {
	p := managedProxy()
	for port, sysctls := range map[int32]int{80: 1, 1023: 1, 1024: 0, 3128: 0, 65535: 0} {
		p.Spec.Port = port
		spec := typedPod(t, p, testProvider())
		assert.Equal(t, port, spec.Containers[0].Ports[0].ContainerPort)
		assert.Equal(t, "proxy", spec.Containers[0].Ports[0].Name)
		assert.Contains(t, spec.Containers[0].Env[0].Value, "\nhttp_port "+json.Number(strings.TrimSpace(string(mustJSON(t, port)))).String()+"\n")
		assert.Len(t, spec.SecurityContext.Sysctls, sysctls, "port %d", port)
	}
}

func TestPodChildQuantitiesAreCanonical(t *testing.T) {
	provider := testProvider()
	for written, stored := range map[string]string{"1000m": "1", "0.5": "500m", "1024Mi": "1Gi", "128Mi": "128Mi", "1000Ki": "1000Ki"} {
		provider.Kubernetes.CPU, provider.Kubernetes.Memory = resource.MustParse(written), resource.MustParse(written)
		child := podChild(managedProxy(), provider, "v1-hash")
		containers, _, err := unstructured.NestedSlice(child.Object, "spec", "containers")
		require.NoError(t, err)
		for _, path := range [][]string{{"requests", "cpu"}, {"requests", "memory"}, {"limits", "memory"}} {
			got, _, err := unstructured.NestedString(containers[0].(map[string]any), append([]string{"resources"}, path...)...)
			require.NoError(t, err)
			assert.Equal(t, stored, got, "%s written as %s", path, written)
		}
	}
}

func TestProbeChildWritesDurationsAsTheCRDWantsThem(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "1s", 30 * time.Second: "30s", time.Minute: "1m0s", time.Hour: "1h0m0s",
		1500 * time.Millisecond: "1500ms", 100 * time.Millisecond: "100ms", 61*time.Second + time.Millisecond: "61001ms",
	} {
		o := observation(managedProxy())
		o.Proxy.Spec.HealthCheck.Interval = metav1.Duration{Duration: d}
		child, err := probeChild(o.Proxy, o.probeOf(runningInstance()))
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
	child, err := probeChild(managedProxy(), &v1alpha1.ProxyProbeSpec{InstanceID: "x", Host: "h", Port: 1})
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
	p := managedProxy()
	assert.Equal(t, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": v1alpha1.InstanceName(p.UID), "namespace": "crawl"},
	}, keptPod(p).Object)
}

func TestToChildDropsWhatIsNotOurs(t *testing.T) {
	pod := podOf(t, managedProxy(), corev1.PodRunning, "10.0.0.1")
	pod.UID = ""
	child, err := toChild(pod)
	require.NoError(t, err)
	assert.NotContains(t, child.Object, "status")
	assert.NotContains(t, child.Object["metadata"], "creationTimestamp")
}
