package install_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

const (
	externalSpec = "{mode: External, endpoint: {host: 192.0.2.7, port: 3128}}"
	managedSpec  = "{mode: Managed, provider: pods}"
)

// The whole install: TLS, token, rights, rotations, uninstall.
func TestRealMetacontroller(t *testing.T) {
	for _, strategy := range []string{"dynamic-apply", "server-side-apply"} {
		t.Run(strategy, func(t *testing.T) {
			runWhole(t, newLab(t, labOptions{variant: "whole", args: []string{"--apply-strategy=" + strategy}}))
		})
	}
}

func runWhole(t *testing.T, l *lab) {
	l.proxy(t, fleet, "external", externalSpec)
	l.proxy(t, fleet, "managed", managedSpec)
	testwait.Eventually(t, "both Proxies have what the hooks want", func() bool {
		return len(l.list(t, podResource())) == 1 && len(l.list(t, v1alpha1.ProxyProbeResource())) == 1 &&
			l.phase(t, fleet, "external") == string(v1alpha1.PhaseProbing) && l.phase(t, fleet, "managed") == string(v1alpha1.PhaseProvisioning)
	})

	for _, c := range l.seen() {
		assert.True(t, c.tls)
		assert.Equal(t, http.StatusOK, c.code, c.path)
	}
	assert.Contains(t, l.finalizers(t)["managed"], metacontroller.Finalizer)
	// An update of a child too, which is a patch under server-side apply.
	l.proxy(t, fleet, "external", strings.Replace(externalSpec, "3128", "3129", 1))
	testwait.Eventually(t, "the ProxyProbe follows the Proxy", func() bool {
		port, _, _ := unstructured.NestedInt64(l.list(t, v1alpha1.ProxyProbeResource())[0].Object, "spec", "port")
		return port == 3129
	})

	l.rotateToken(t)
	l.rotateCA(t)
	assert.Zero(t, l.refused(t))
	l.assertTokensAreNotLogged(t)

	said, err := l.uninstall(t, "--delete-proxies", "--timeout", "30")
	require.NoError(t, err, said)
	assert.Empty(t, l.finalizers(t))
	assert.Empty(t, l.list(t, podResource()))
	assert.False(t, l.hasController(t))
	assert.Zero(t, l.refused(t))
}

// rotateToken follows the steps that certs prints.
func (l *lab) rotateToken(t *testing.T) {
	t.Helper()
	l.renew(t, certs.RenewToken)
	objects := controlplanetest.Kustomize(t, overlay(t, l.root, l.v))
	l.mount(t, objects) // webhooks first: it takes both
	before := len(l.seen())
	l.apply(t)
	current, err := os.ReadFile(filepath.Join(l.files, certs.KeyToken))
	require.NoError(t, err)
	want := strings.Fields(string(current))[0]
	testwait.Eventually(t, "Metacontroller shows the new token", func() bool {
		calls := l.seen()
		return len(calls) > before && calls[len(calls)-1].token == want
	})

	for _, c := range l.seen()[before:] {
		assert.Equal(t, http.StatusOK, c.code, "nobody was refused meanwhile")
	}
}

// rotateCA replaces the authority: first the patch, then the certificate.
func (l *lab) rotateCA(t *testing.T) {
	t.Helper()
	l.renew(t, certs.RenewCA)
	l.apply(t)
	before := len(l.seen())
	testwait.Eventually(t, "hooks are called under the new authority", func() bool { return len(l.seen()) > before+2 })
}

func (l *lab) assertTokensAreNotLogged(t *testing.T) {
	t.Helper()
	tokens, err := os.ReadFile(filepath.Join(l.files, certs.KeyToken))
	require.NoError(t, err)
	log := l.logged(t)
	require.Contains(t, log, "Starting CompositeController")
	for _, token := range strings.Fields(string(tokens)) {
		assert.NotContains(t, log, token)
	}
}

func TestRealUninstallLeavesProxies(t *testing.T) {
	l := newLab(t, labOptions{variant: "whole"})
	l.proxy(t, fleet, "external", externalSpec)
	testwait.Eventually(t, "the finalizer", func() bool { return len(l.finalizers(t)["external"]) == 1 })
	said, err := l.uninstall(t, "--timeout", "30")
	require.NoError(t, err, said)
	assert.Equal(t, map[string][]string{"external": nil}, l.finalizers(t))
	assert.False(t, l.hasController(t))
}

// Without the token Metacontroller reads no Secret. Without rights in a namespace
// it reports that in an Event of the Proxy.
func TestRealLeastRights(t *testing.T) {
	l := newLab(t, labOptions{variant: "least"})
	l.proxy(t, fleet, "external", externalSpec)
	testwait.Eventually(t, "hooks are called without a token", func() bool {
		return l.phase(t, fleet, "external") == string(v1alpha1.PhaseProbing)
	})

	assert.Empty(t, l.seen()[0].token)
	assert.Zero(t, l.refused(t), "it must not ask for Secrets")

	l.proxy(t, "default", "elsewhere", externalSpec)
	testwait.Eventually(t, "an event on the Proxy that says why", func() bool {
		events, err := l.Typed.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=elsewhere"})
		require.NoError(t, err)
		return len(events.Items) > 0 && strings.Contains(events.Items[0].Message, "forbidden")
	})

}

func TestRealCloudInitSecrets(t *testing.T) {
	l := newLab(t, labOptions{variant: "cloud-init-secrets", cloudInitSecrets: true})
	l.Apply(t, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "boot", "namespace": "`+fleet+`", "labels": {"`+v1alpha1.LabelCloudInit+`": "true"}}, "data": {"user-data": "I2Nsb3VkLWNvbmZpZwo="}}`)
	t.Cleanup(func() { l.mustKubectl(t, "", "-n", fleet, "delete", "secret", "boot") })
	l.proxy(t, fleet, "managed", "{mode: Managed, provider: pods, cloudInit: {secretRef: {name: boot, key: user-data}}}")
	testwait.Eventually(t, "a Pod, which takes the Secret", func() bool { return len(l.list(t, podResource())) == 1 })
	assert.Zero(t, l.refused(t))
}

// The trap in the comment of components/hook-token: nothing is reconciled, only the
// log shows the reason, and Metacontroller retries until the right is granted.
func TestRealTokenWithoutRights(t *testing.T) {
	l := newLab(t, labOptions{variant: "whole", without: []string{"egress-proxies-metacontroller-hook-token"}})
	l.proxy(t, fleet, "external", externalSpec)
	testwait.Eventually(t, "the log says why", func() bool { return strings.Contains(l.logged(t), "failed to list *v1.Secret") })
	assert.Empty(t, l.seen())
	assert.Empty(t, l.finalizers(t)["external"])
	assert.NotZero(t, l.refused(t), "the other tests would notice nothing")

	l.apply(t)
	require.Eventually(t, func() bool { return len(l.seen()) > 0 }, time.Minute, 100*time.Millisecond, "client-go backs off for up to 30 s")
}
