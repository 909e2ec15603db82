package install_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// ours selects what this folder installs.
const ours = "app.kubernetes.io/part-of=egress-proxies,app.kubernetes.io/component=metacontroller"

// cluster is a real API server with all CRDs and no controllers.
type cluster struct {
	*controlplane.ControlPlane
	kubectl string
	dynamic dynamic.Interface
	typed   kubernetes.Interface
}

// newCluster returns the shared API server, without leftovers of other tests.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: shared.Get(t), kubectl: controlplanetest.Assets(t).Kubectl}
	standins, err := os.ReadFile("testdata/standin-crds.yaml")
	require.NoError(t, err)
	manifests := crd.Manifests()
	for _, doc := range strings.Split(string(standins), "\n---\n") {
		manifests = append(manifests, []byte(doc))
	}
	require.NoError(t, upstream.InstallKinds(t.Context(), c.RESTConfig()))
	require.NoError(t, controlplane.InstallCRDs(t.Context(), c.RESTConfig(), manifests...))
	c.dynamic, err = dynamic.NewForConfig(c.RESTConfig())
	require.NoError(t, err)
	c.typed, err = kubernetes.NewForConfig(c.RESTConfig())
	require.NoError(t, err)
	for _, namespace := range []string{fleet, accountNamespace} {
		c.mustApply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+", labels: {pod-security.kubernetes.io/enforce: restricted}}\n")
		require.NoError(t, controlplane.EnsureServiceAccount(t.Context(), c.typed, namespace))
	}
	t.Cleanup(func() { c.clean(t) })
	return c
}

// clean removes rights, our controller and all Proxies, by force.
func (c *cluster) clean(t *testing.T) {
	t.Helper()
	c.mustKubectl(t, "", "delete", "compositecontrollers.metacontroller.k8s.io", "--all")
	c.mustKubectl(t, "", "delete", "clusterroles,clusterrolebindings", "-l", ours)
	c.mustKubectl(t, "", "delete", "roles,rolebindings,secrets", "-A", "-l", "app.kubernetes.io/part-of=egress-proxies")
	for _, proxy := range c.list(t, v1alpha1.ProxyResource()) {
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		_, err := c.dynamic.Resource(v1alpha1.ProxyResource()).Namespace(proxy.GetNamespace()).Patch(context.Background(), proxy.GetName(), "application/merge-patch+json", patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	c.mustKubectl(t, "", "delete", "proxies,proxyprobes,pods", "-A", "--all", "--force")
}

func (c *cluster) run(in, program string, args ...string) (string, string, error) {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(in)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECTL="+c.kubectl)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	return out.String(), errOut.String(), err
}

func (c *cluster) mustKubectl(t *testing.T, in string, args ...string) string {
	t.Helper()
	out, errOut, err := c.run(in, c.kubectl, args...)
	require.NoError(t, err, "kubectl %s: %s", strings.Join(args, " "), errOut)
	return out
}

func (c *cluster) mustApply(t *testing.T, manifests string) {
	t.Helper()
	c.mustKubectl(t, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

// install applies a variant for real.
func (c *cluster) install(t *testing.T, v variant) {
	t.Helper()
	c.mustApply(t, encode(t, render(t, v)))
}

func encode(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	var docs []string
	for _, o := range objects {
		doc, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		docs = append(docs, string(doc))
	}
	return strings.Join(docs, "---\n")
}

func (c *cluster) list(t *testing.T, r schema.GroupVersionResource) []unstructured.Unstructured {
	t.Helper()
	list, err := c.dynamic.Resource(r).List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func controllers() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "compositecontrollers"}
}

func podResource() schema.GroupVersionResource { return corev1.SchemeGroupVersion.WithResource("pods") }

// external makes a Proxy.
func (c *cluster) external(t *testing.T, name string, finalizers ...string) {
	t.Helper()
	c.mustApply(t, "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: "+name+", namespace: "+fleet+
		", finalizers: ["+strings.Join(finalizers, ", ")+"]}\nspec: {mode: External, endpoint: {host: 192.0.2.7, port: 3128}}\n")
}

// finalizers returns those of all Proxies by name.
func (c *cluster) finalizers(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, proxy := range c.list(t, v1alpha1.ProxyResource()) {
		all[proxy.GetName()] = proxy.GetFinalizers()
	}
	return all
}

func (c *cluster) hasController(t *testing.T) bool {
	t.Helper()
	for _, cc := range c.list(t, controllers()) {
		if cc.GetName() == metacontroller.ControllerName {
			return true
		}
	}
	return false
}

// accountKubeconfig writes a kubeconfig for Metacontroller's own ServiceAccount.
func (c *cluster) accountKubeconfig(t *testing.T) string {
	t.Helper()
	token := strings.TrimSpace(c.mustKubectl(t, "", "-n", accountNamespace, "create", "token", accountName, "--duration=1h"))
	content, err := os.ReadFile(c.Kubeconfig())
	require.NoError(t, err)
	ca := base64.StdEncoding.EncodeToString(c.RESTConfig().CAData)
	require.Contains(t, string(content), ca)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	changed := regexp.MustCompile(`(?m)^(\s+token:).*$`).ReplaceAllString(string(content), "$1 "+token)
	require.NoError(t, os.WriteFile(path, []byte(changed), 0o600))
	return path
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if condition() { // require.Eventually looks after the first tick only
		return
	}
	require.Eventually(t, condition, 30*time.Second, 50*time.Millisecond, what)
}
