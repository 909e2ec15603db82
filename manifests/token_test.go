package manifests_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The script makes the Secret that discovery reads, once, and shows nobody what
// is in it.
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
