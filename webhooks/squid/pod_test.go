package squid

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func TestPodGolden(t *testing.T) {
	child := testTemplate().Pod(testProxy(), "v1-hash")
	b, err := json.MarshalIndent(child, "", "  ")
	require.NoError(t, err)
	golden(t, "pod.json", append(b, '\n'))
}

func typedPod(t *testing.T, p *v1alpha1.Proxy, template *Template) corev1.PodSpec {
	t.Helper()
	child := template.Pod(p, "v1-hash")
	dec := json.NewDecoder(bytes.NewReader(mustJSON(t, child)))
	dec.DisallowUnknownFields()
	var pod corev1.Pod
	require.NoError(t, dec.Decode(&pod))
	return pod.Spec
}

// The Pod Security Standard "restricted", item by item.
func TestPodIsRestricted(t *testing.T) {
	spec := typedPod(t, testProxy(), testTemplate())
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

func TestPodListensOnTheSpecsPort(t *testing.T) {
	p := testProxy()
	for port, sysctls := range map[int32]int{80: 1, 1023: 1, 1024: 0, 3128: 0, 65535: 0} {
		p.Spec.Port = port
		spec := typedPod(t, p, testTemplate())
		assert.Equal(t, port, spec.Containers[0].Ports[0].ContainerPort)
		assert.Equal(t, "proxy", spec.Containers[0].Ports[0].Name)
		assert.Contains(t, spec.Containers[0].Env[0].Value, "\nhttp_port "+fmt.Sprint(port)+"\n")
		assert.Len(t, spec.SecurityContext.Sysctls, sysctls, "port %d", port)
	}
}

func TestPodQuantitiesAreCanonical(t *testing.T) {
	template := testTemplate()
	for written, stored := range map[string]string{"1000m": "1", "0.5": "500m", "1024Mi": "1Gi", "128Mi": "128Mi", "1000Ki": "1000Ki"} {
		template.CPU, template.Memory = resource.MustParse(written), resource.MustParse(written)
		child := template.Pod(testProxy(), "v1-hash")
		containers, _, err := unstructured.NestedSlice(child.Object, "spec", "containers")
		require.NoError(t, err)
		for _, path := range [][]string{{"requests", "cpu"}, {"requests", "memory"}, {"limits", "memory"}} {
			got, _, err := unstructured.NestedString(containers[0].(map[string]any), append([]string{"resources"}, path...)...)
			require.NoError(t, err)
			assert.Equal(t, stored, got, "%s written as %s", path, written)
		}
	}
}
