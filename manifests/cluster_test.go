package manifests_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// cluster is a real API server with all kinds and no controllers.
type cluster struct{ *controlplanetest.Cluster }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	foreign, err := os.ReadFile("testdata/foreign-crds.yaml")
	require.NoError(t, err)
	manifests := crd.Manifests()
	for doc := range strings.SplitSeq(string(foreign), "\n---\n") {
		manifests = append(manifests, []byte(doc))
	}
	c := &cluster{shared.Cluster(t, manifests...)}
	require.NoError(t, upstream.InstallKinds(t.Context(), c.RESTConfig()))
	t.Cleanup(func() {
		// What a StatefulSet claims cannot be changed, only deleted with it.
		_, errOut, err := c.run("", "delete", "deployments,statefulsets", "-A", "--all")
		assert.NoError(t, err, errOut)
	})
	return c
}

// run runs kubectl as the administrator.
func (c *cluster) run(in string, args ...string) (string, string, error) {
	return c.Run(in, c.Kubectl, args...)
}

// apply applies manifests for real.
func (c *cluster) apply(t *testing.T, all objects) {
	t.Helper()
	c.Apply(t, controlplanetest.EncodeManifests(t, all))
}

// namespaces applies the two Namespaces with their labels and nothing else,
// which everything else needs to be tried.
func (c *cluster) namespaces(t *testing.T, all objects) {
	t.Helper()
	c.apply(t, all.ofKind("Namespace"))
	for _, namespace := range []string{system, fleet} {
		require.NoError(t, controlplane.EnsureServiceAccount(t.Context(), c.Typed, namespace))
	}
}
