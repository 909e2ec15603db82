package manifests_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// cluster is a real API server with all kinds and no controllers.
type cluster struct {
	*controlplane.ControlPlane
	kubectl string
	dynamic dynamic.Interface
	typed   kubernetes.Interface
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: shared.Get(t), kubectl: controlplanetest.Assets(t).Kubectl}
	foreign, err := os.ReadFile("testdata/foreign-crds.yaml")
	require.NoError(t, err)
	manifests := crd.Manifests()
	for doc := range strings.SplitSeq(string(foreign), "\n---\n") {
		manifests = append(manifests, []byte(doc))
	}
	require.NoError(t, upstream.InstallKinds(t.Context(), c.RESTConfig()))
	require.NoError(t, controlplane.InstallCRDs(t.Context(), c.RESTConfig(), manifests...))
	c.dynamic, err = dynamic.NewForConfig(c.RESTConfig())
	require.NoError(t, err)
	c.typed, err = kubernetes.NewForConfig(c.RESTConfig())
	require.NoError(t, err)
	t.Cleanup(func() {
		// What a StatefulSet claims cannot be changed, only deleted with it.
		_, errOut, err := c.run("", "delete", "deployments,statefulsets", "-A", "--all")
		assert.NoError(t, err, errOut)
	})
	return c
}

// run runs kubectl as the administrator.
func (c *cluster) run(in string, args ...string) (string, string, error) {
	cmd := exec.Command(c.kubectl, args...)
	cmd.Stdin = strings.NewReader(in)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	return out.String(), errOut.String(), err
}

// apply applies manifests for real.
func (c *cluster) apply(t *testing.T, all objects) {
	t.Helper()
	_, errOut, err := c.run(encode(t, all), "apply", "--server-side", "--force-conflicts", "-f", "-")
	require.NoError(t, err, errOut)
}

// namespaces applies the two Namespaces with their labels and nothing else,
// which everything else needs to be tried.
func (c *cluster) namespaces(t *testing.T, all objects) {
	t.Helper()
	c.apply(t, all.ofKind("Namespace"))
	for _, namespace := range []string{system, fleet} {
		require.NoError(t, controlplane.EnsureServiceAccount(t.Context(), c.typed, namespace))
	}
}

func encode(t *testing.T, all objects) string {
	t.Helper()
	var docs []string
	for _, o := range all {
		doc, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		docs = append(docs, string(doc))
	}
	return strings.Join(docs, "---\n")
}
