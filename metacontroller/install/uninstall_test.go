package install_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// soon is a short timeout of the script.
const soon = "--timeout=2"

// withProxies returns a cluster with our controller and some Proxies that carry
// its finalizer.
func withProxies(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.install(t, variants()["whole"])
	c.external(t, "one", metacontroller.Finalizer)
	c.external(t, "two", theirFinalizer, metacontroller.Finalizer)
	return c
}

// uninstall runs the script with long timeouts, unless the test expects one.
func (c *cluster) uninstall(t *testing.T, args ...string) (string, error) {
	t.Helper()
	script, err := filepath.Abs("../../scripts/uninstall.sh")
	require.NoError(t, err)
	out, errOut, err := c.Run("", script, append([]string{"--timeout", "60"}, args...)...)
	return out + errOut, err
}

func TestUninstall(t *testing.T) {
	c := withProxies(t)
	(&standIn{c: c}).run(t)

	said, err := c.uninstall(t)
	require.NoError(t, err, said)
	assert.False(t, c.hasController(t))
	assert.Equal(t, map[string][]string{"one": nil, "two": {theirFinalizer}}, c.finalizers(t), "Proxies stay, free of us alone")
	assert.Contains(t, said, "WARNING: 2 Proxies stay", "nobody looks after their instances now")

	c.mustKubectl(t, "", "-n", fleet, "delete", "proxy", "one", "--timeout=10s")
	again, err := c.uninstall(t)
	require.NoError(t, err, again)
	assert.Contains(t, again, "is not there")
	assert.Contains(t, again, "done")
}

func TestUninstallDeletesProxiesFirst(t *testing.T) {
	c := newCluster(t)
	c.install(t, variants()["whole"])
	c.external(t, "one", metacontroller.Finalizer)
	s := &standIn{c: c}
	s.run(t)

	said, err := c.uninstall(t, "--delete-proxies", soon)
	require.Error(t, err, "the instance is not gone")
	assert.Contains(t, said, "egress-proxies/one")
	assert.Contains(t, said, "crawl.example.com/abandon=true")
	assert.True(t, c.hasController(t), "somebody must finalize it still")
	assert.Equal(t, map[string][]string{"one": {metacontroller.Finalizer}}, c.finalizers(t))

	s.finished.Store(true)
	said, err = c.uninstall(t, "--delete-proxies")
	require.NoError(t, err, said)
	assert.Empty(t, c.finalizers(t))
	assert.False(t, c.hasController(t))
	assert.NotContains(t, said, "WARNING")
}

func TestUninstallWithoutMetacontroller(t *testing.T) {
	c := withProxies(t)
	said, err := c.uninstall(t, soon)
	require.Error(t, err)
	assert.Contains(t, said, "waiting for 2 Proxies to lose their finalizer")
	assert.Contains(t, said, "Is it running and leading?")
	assert.Contains(t, said, "egress-proxies/one")
	assert.True(t, c.hasController(t), "it is what takes the finalizers off once it runs again")
	assert.Contains(t, c.finalizers(t)["one"], metacontroller.Finalizer)

	said, err = c.uninstall(t, "--strip-finalizers", "--timeout", "4") // also of a wait that ends in time
	require.NoError(t, err, said)
	assert.Equal(t, map[string][]string{"one": nil, "two": {theirFinalizer}}, c.finalizers(t))
	assert.False(t, c.hasController(t))
}

// The CompositeController was deleted manually.
func TestUninstallTooLate(t *testing.T) {
	c := withProxies(t)
	c.mustKubectl(t, "", "delete", "compositecontrollers.metacontroller.k8s.io", metacontroller.ControllerName)
	said, err := c.uninstall(t, soon)
	require.Error(t, err)
	assert.Contains(t, said, "is gone, and these Proxies still carry its finalizer: egress-proxies/one, egress-proxies/two")
	assert.Contains(t, said, "apply it again")

	c.install(t, variants()["whole"])
	(&standIn{c: c}).run(t)
	said, err = c.uninstall(t)
	require.NoError(t, err, said)
	assert.NotContains(t, c.finalizers(t)["one"], metacontroller.Finalizer)
}

// A GitOps tool reconciles the hook back at once.
func TestUninstallAgainstGitOps(t *testing.T) {
	c := withProxies(t)
	whole := controlplanetest.EncodeManifests(t, render(t, variants()["whole"]))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _, _ = c.Run(whole, c.Kubectl, "apply", "--server-side", "--force-conflicts", "-f", "-")
		}
	}()
	t.Cleanup(func() { cancel(); <-done })

	testwait.Eventually(t, "the script meets the hook put back", func() bool {
		said, err := c.uninstall(t, soon)
		require.Error(t, err, said)
		return c.hasController(t) && strings.Contains(said, "the finalize hook is back")
	})

}

func TestUninstallMetacontrollerToo(t *testing.T) {
	c := newCluster(t)
	c.install(t, variants()["everything"])
	said, err := c.uninstall(t, "--with-metacontroller")
	require.NoError(t, err, said)
	left := c.mustKubectl(t, "", "get", "clusterroles,clusterrolebindings,rolebindings", "-A", "-o", "name")
	assert.NotContains(t, left, "egress-proxies-metacontroller")
	ns, err := c.Typed.CoreV1().Namespaces().Get(t.Context(), accountNamespace, metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotNil(t, ns.DeletionTimestamp)
	// No controller ends namespaces here; other tests need it.
	ns.Spec.Finalizers = nil
	_, err = c.Typed.CoreV1().Namespaces().Finalize(t.Context(), ns, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func TestUninstallWhereNothingIs(t *testing.T) {
	c := newCluster(t)
	said, err := c.uninstall(t)
	require.NoError(t, err, said)
}

func TestUninstallRefuses(t *testing.T) {
	c := newCluster(t)
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"unknown flag": {[]string{"--delete"}, `unknown argument "--delete"`},
		"no number":    {[]string{"--timeout", "2m"}, `--timeout "2m"`},
		"nothing":      {[]string{"--timeout"}, `--timeout ""`},
		"zero":         {[]string{"--timeout=0"}, `--timeout "0"`},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := c.uninstall(t, tt.args...)
			require.Error(t, err)
			assert.Contains(t, said, tt.says)
		})
	}
	help, err := c.uninstall(t, "--help")
	require.NoError(t, err)
	for _, flag := range []string{"--delete-proxies", "--with-metacontroller", "--strip-finalizers", "--timeout"} {
		assert.Contains(t, help, flag)
	}
}

func TestUninstallWithoutAServer(t *testing.T) {
	c := newCluster(t)
	t.Setenv("KUBECONFIG", "")
	script, err := filepath.Abs("../../scripts/uninstall.sh")
	require.NoError(t, err)
	_, said, err := c.Run("", "env", "KUBECONFIG=/nowhere", script)
	require.Error(t, err)
	assert.Contains(t, said, "cannot ask the API server")
}
