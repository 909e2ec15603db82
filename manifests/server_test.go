package manifests_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// The API server takes every overlay and variant, checks every field by name,
// and has nothing to warn of, Pod Security among it.
func TestServerAccepts(t *testing.T) {
	c := newCluster(t)
	all := renderAll(t)
	c.namespaces(t, all["release"])
	for name, manifests := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errOut, err := c.run(controlplanetest.EncodeManifests(t, manifests), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
			require.NoError(t, err, errOut)
			assert.Empty(t, errOut)
			assert.Equal(t, len(manifests), strings.Count(out, "(server dry run)"), out)
		})
	}
}

func TestServerRefusesAnUnknownField(t *testing.T) {
	c := newCluster(t)
	all := renderAll(t)["release"]
	c.namespaces(t, all)
	manifests := strings.Replace(controlplanetest.EncodeManifests(t, all.workloads()), "replicas: 1", "replica: 1", 1)
	_, errOut, err := c.run(manifests, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	require.Error(t, err, "the test above could not fail")
	assert.Contains(t, errOut, `unknown field "spec.replica"`)
}

// Pods of every workload are admitted to their namespace, which is restricted.
func TestPodSecurity(t *testing.T) {
	c := newCluster(t)
	everything := renderAll(t)
	c.namespaces(t, everything["release"])
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	for name, all := range everything {
		c.apply(t, all.ofKind("ServiceAccount"))
		for _, workload := range all.workloads() {
			t.Run(name+"/"+workload.GetName(), func(t *testing.T) {
				template := podTemplate(t, workload)
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "trial", Labels: template.Labels}, Spec: template.Spec}
				pod.Spec.Volumes = append(slices.Clone(pod.Spec.Volumes), claims(t, workload)...)
				_, err := c.Typed.CoreV1().Pods(workload.GetNamespace()).Create(t.Context(), pod, dryRun)
				require.NoError(t, err)
			})
		}
	}
	for _, namespace := range []string{system, fleet} {
		loose := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "loose"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		_, err := c.Typed.CoreV1().Pods(namespace).Create(t.Context(), loose, dryRun)
		require.ErrorContains(t, err, "violates PodSecurity", "the namespace must enforce it")
	}
}

// claims are the volumes that a StatefulSet's controller gives its Pods.
func claims(t *testing.T, workload *unstructured.Unstructured) []corev1.Volume {
	t.Helper()
	if workload.GetKind() != "StatefulSet" {
		return nil
	}
	var volumes []corev1.Volume
	for _, claim := range as[appsv1.StatefulSet](t, workload).Spec.VolumeClaimTemplates {
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + workload.GetName() + "-0"}
		volumes = append(volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}})
	}
	return volumes
}

// The script creates the Secret that discovery reads, idempotently, and never prints the
// token.
func TestDiscoveryToken(t *testing.T) {
	c := newCluster(t)
	all := renderAll(t)["release"]
	c.namespaces(t, all)
	secrets := c.Typed.CoreV1().Secrets(system)
	_ = secrets.Delete(t.Context(), "discovery-token", metav1.DeleteOptions{})
	script := func() string {
		cmd := exec.Command("../scripts/discovery-token.sh")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECTL="+c.Kubectl)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	out := script()
	ref := all.container(t, "discovery", "discovery").Env[0].ValueFrom.SecretKeyRef
	made, err := secrets.Get(t.Context(), ref.Name, metav1.GetOptions{})
	require.NoError(t, err)
	token := string(made.Data[ref.Key])
	assert.Regexp(t, `^[A-Za-z0-9_-]{43}$`, token)

	out += script()
	again, err := secrets.Get(t.Context(), ref.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, token, string(again.Data[ref.Key]), "a token in use is not replaced")
	assert.NotContains(t, out, token)
}
