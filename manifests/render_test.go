package manifests_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
)

// system is the namespace of our processes, fleet the one with the proxies.
const (
	system = "egress-proxies"
	fleet  = "crawl"
)

// overlays are what users apply as it is, by folder.
var overlays = []string{"release", "release-ha", "kind", "e2e"}

// variants are overlays that users write: the base with components.
var variants = map[string][]string{
	"tls":                {"tls"},
	"cloud-init-secrets": {"cloud-init-secrets"},
	"no-hook-token":      {"no-hook-token"},
	"monitoring":         {"monitoring"},
	"gcp":                {"gcp", "monitoring"},
	"redis":              {"redis"},
	"most":               {"ha", "redis", "tls", "cloud-init-secrets", "monitoring"},
}

// objects is what a kustomization renders to.
type objects []*unstructured.Unstructured

var rendered struct {
	once sync.Once
	all  map[string]objects
}

// renderAll returns every overlay and variant by name. They are rendered once
// and shared: do not change them.
func renderAll(t *testing.T) map[string]objects {
	t.Helper()
	rendered.once.Do(func() { rendered.all = renderEach(t) })
	require.NotEmpty(t, rendered.all, "rendering failed in an earlier test")
	return rendered.all
}

// renderEach renders as many at once as there are CPUs.
func renderEach(t *testing.T) map[string]objects {
	t.Helper()
	controlplanetest.Assets(t) // skips before any goroutine would
	var mu sync.Mutex
	all := map[string]objects{}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	add := func(name string, render func() objects) {
		group.Go(func() error {
			o := render()
			mu.Lock()
			defer mu.Unlock()
			all[name] = o
			return nil
		})
	}
	for _, name := range overlays {
		add(name, func() objects { return controlplanetest.Kustomize(t, filepath.Join("overlays", name)) })
	}
	for name, components := range variants {
		add(name, func() objects { return renderWith(t, components...) })
	}
	_ = group.Wait() // failures are t's
	return all
}

// renderWith renders a user's overlay, outside of the repository.
func renderWith(t *testing.T, components ...string) objects {
	t.Helper()
	var b strings.Builder
	dir := t.TempDir()
	b.WriteString("resources:\n- " + relative(t, dir, "base") + "\n- " + relative(t, dir, "fleet") + "\ncomponents:\n")
	for _, component := range components {
		b.WriteString("- " + relative(t, dir, "components/"+component) + "\n")
	}
	return renderOverlay(t, dir, b.String())
}

func renderOverlay(t *testing.T, dir, kustomization string) objects {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o644))
	return controlplanetest.Kustomize(t, dir)
}

// relative is the path of a folder here as a kustomization in dir names it.
func relative(t *testing.T, dir, folder string) string {
	t.Helper()
	here, err := filepath.Abs(folder)
	require.NoError(t, err)
	dir, err = filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	rel, err := filepath.Rel(dir, here)
	require.NoError(t, err)
	return rel
}

// find returns the one object of a kind and name.
func (all objects) find(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	found := all.ofKind(kind)
	for _, o := range found {
		if o.GetName() == name {
			return o
		}
	}
	require.Fail(t, "not there", "%s %s", kind, name)
	return nil
}

func (all objects) ofKind(kinds ...string) objects {
	var found objects
	for _, o := range all {
		if slices.Contains(kinds, o.GetKind()) {
			found = append(found, o)
		}
	}
	return found
}

func as[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	return controlplanetest.Convert[T](t, o)
}

func TestEverythingRenders(t *testing.T) {
	clusterScoped := []string{"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
	for name, all := range renderAll(t) {
		seen := map[string]bool{}
		for _, o := range all {
			id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			assert.False(t, seen[id], "%s: twice: %s", name, id)
			seen[id] = true
			if slices.Contains(clusterScoped, o.GetKind()) {
				assert.Empty(t, o.GetNamespace(), "%s: %s", name, id)
			} else {
				assert.Contains(t, []string{system, fleet}, o.GetNamespace(), "%s: %s", name, id)
			}
			if o.GetKind() != "CustomResourceDefinition" {
				assert.Equal(t, "egress-proxies", o.GetLabels()["app.kubernetes.io/part-of"], "%s: %s", name, id)
			}
			assert.NotEqual(t, "Secret", o.GetKind(), "%s: keys and tokens are nobody's but the installation's", name)
		}
	}
}

func TestEveryFolderIsTried(t *testing.T) {
	tried := []string{"ha", "shards-2", "shards-4"} // in release-ha, and by TestShards
	for _, components := range variants {
		tried = append(tried, components...)
	}
	assert.Subset(t, tried, folders(t, "components"))
	assert.ElementsMatch(t, overlays, folders(t, "overlays"))
}

func folders(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// No folder needs the network to render.
func TestNothingNeedsTheNetwork(t *testing.T) {
	require.NoError(t, filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		require.NoError(t, err)
		if filepath.Base(path) == "kustomization.yaml" {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.NotRegexp(t, `(?m)^- \w+://`, string(content), path)
		}
		return nil
	}))
}

// Every CRD that is generated is installed.
func TestAllKindsAreInstalled(t *testing.T) {
	installed := objects(controlplanetest.Kustomize(t, "crd"))
	require.Len(t, installed, len(crd.Manifests()))
	for _, manifest := range crd.Manifests() {
		want := controlplanetest.ParseManifests(t, manifest)[0]
		assert.Equal(t, want, installed.find(t, "CustomResourceDefinition", want.GetName()))
	}
}

// A namespace for proxies can be had under another name.
func TestAnotherFleet(t *testing.T) {
	dir := t.TempDir()
	all := renderOverlay(t, dir, "namespace: crawl-eu\nresources:\n- "+relative(t, dir, "fleet")+"\n")
	all.find(t, "Namespace", "crawl-eu")
	for _, o := range all {
		if o.GetKind() != "Namespace" {
			assert.Equal(t, "crawl-eu", o.GetNamespace(), o.GetKind())
		}
	}
	subjects, _, err := unstructured.NestedSlice(all.find(t, "RoleBinding", "egress-proxies-credentials").Object, "subjects")
	require.NoError(t, err)
	for _, subject := range subjects {
		assert.Equal(t, system, subject.(map[string]any)["namespace"], "our processes stay where they are")
	}
}

// Metacontroller finds webhooks, and the two share Secrets that certs writes.
func TestWebhooksFitsMetacontroller(t *testing.T) {
	all := objects(controlplanetest.Kustomize(t, "overlays/release"))
	cc, err := metacontroller.LoadController("../metacontroller/compositecontroller.yaml")
	require.NoError(t, err)
	service := as[corev1.Service](t, all.find(t, "Service", "webhooks"))
	want := "https://" + service.Name + "." + service.Namespace + ".svc:8443/hooks/sync"
	assert.Equal(t, want, cc.Spec.Hooks.Sync.Webhook.URL)
	assert.EqualValues(t, 8443, service.Spec.Ports[0].Port)
	assert.Contains(t, certs.DefaultOptions().Names(), service.Name+"."+service.Namespace+".svc")
	assert.Equal(t, system, certs.DefaultOptions().Namespace)

	secrets := map[string]string{}
	for _, volume := range podSpec(t, all.find(t, "Deployment", "webhooks")).Volumes {
		if volume.Secret != nil {
			secrets[volume.Name] = volume.Secret.SecretName
		}
	}
	assert.Equal(t, map[string]string{"tls": certs.SecretTLS, "token": certs.SecretToken}, secrets)
}

func TestProviderConfigs(t *testing.T) {
	for name, all := range renderAll(t) {
		maps := all.ofKind("ConfigMap")
		for _, m := range maps {
			if content, found, _ := unstructured.NestedString(m.Object, "data", "providers.yaml"); found {
				providers, err := config.ParseProviders([]byte(content))
				require.NoError(t, err, name)
				assert.NotEmpty(t, providers, name)
			}
		}
	}
}
