// Package install_test checks the manifests of this folder against the needs of
// Metacontroller and against a real API server.
package install_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// shared is the API server of this package's tests.
var shared controlplanetest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// ours selects what this folder installs.
const ours = "app.kubernetes.io/part-of=egress-proxies,app.kubernetes.io/component=metacontroller"

// cluster is a real API server with all CRDs and no controllers.
type cluster struct{ *controlplanetest.Cluster }

// newCluster returns the shared API server, without leftovers of other tests.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	standins, err := os.ReadFile("testdata/standin-crds.yaml")
	require.NoError(t, err)
	manifests := crd.Manifests()
	for doc := range strings.SplitSeq(string(standins), "\n---\n") {
		manifests = append(manifests, []byte(doc))
	}
	c := &cluster{shared.Cluster(t, manifests...)}
	require.NoError(t, upstream.InstallKinds(t.Context(), c.RESTConfig()))
	for _, namespace := range []string{fleet, accountNamespace} {
		c.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+", labels: {pod-security.kubernetes.io/enforce: restricted}}\n")
		require.NoError(t, controlplane.EnsureServiceAccount(t.Context(), c.Typed, namespace))
	}
	t.Cleanup(func() { c.clean(t) })
	return c
}

// clean deletes rights, our controller and all Proxies, even those with finalizers.
// It uses the client: each kubectl process costs half a second.
func (c *cluster) clean(t *testing.T) {
	t.Helper()
	rbac := func(resource string) schema.GroupVersionResource {
		return rbacv1.SchemeGroupVersion.WithResource(resource)
	}
	const part = "app.kubernetes.io/part-of=egress-proxies"
	c.deleteAll(t, controllers(), "")
	for _, resource := range []string{"clusterroles", "clusterrolebindings"} {
		c.deleteAll(t, rbac(resource), ours)
	}
	for _, r := range []schema.GroupVersionResource{rbac("roles"), rbac("rolebindings"), corev1.SchemeGroupVersion.WithResource("secrets")} {
		c.deleteAll(t, r, part)
	}
	for _, r := range []schema.GroupVersionResource{v1alpha1.ProxyResource(), v1alpha1.ProxyProbeResource(), podResource()} {
		c.deleteAll(t, r, "")
	}
}

// deleteAll deletes the selected objects of a resource in all namespaces, without
// their finalizers and without a grace period.
func (c *cluster) deleteAll(t *testing.T, r schema.GroupVersionResource, selector string) {
	t.Helper()
	ctx := context.Background()
	list, err := c.Dynamic.Resource(r).List(ctx, metav1.ListOptions{LabelSelector: selector})
	require.NoError(t, err)
	for _, obj := range list.Items {
		client := dynamic.ResourceInterface(c.Dynamic.Resource(r))
		if obj.GetNamespace() != "" {
			client = c.Dynamic.Resource(r).Namespace(obj.GetNamespace())
		}
		if len(obj.GetFinalizers()) > 0 {
			_, err := client.Patch(ctx, obj.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			require.NoError(t, ignoreNotFound(err))
		}
		require.NoError(t, ignoreNotFound(client.Delete(ctx, obj.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})))
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *cluster) mustKubectl(t *testing.T, in string, args ...string) string {
	t.Helper()
	out, errOut, err := c.Run(in, c.Kubectl, args...)
	require.NoError(t, err, "kubectl %s: %s", strings.Join(args, " "), errOut)
	return out
}

// install applies a variant for real.
func (c *cluster) install(t *testing.T, v variant) {
	t.Helper()
	c.Apply(t, controlplanetest.EncodeManifests(t, render(t, v)))
}

func (c *cluster) list(t *testing.T, r schema.GroupVersionResource) []unstructured.Unstructured {
	t.Helper()
	list, err := c.Dynamic.Resource(r).List(context.Background(), metav1.ListOptions{})
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
	c.Apply(t, "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: "+name+", namespace: "+fleet+
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
