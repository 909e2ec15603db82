package install_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// variant is one way to put the parts together: an overlay outside the
// metacontroller folder, as in docs/install-metacontroller.md.
type variant struct {
	// resource is the folder under metacontroller that the overlay builds on.
	resource string
	// components under install/components.
	components []string
	// managed: cert-manager makes the server certificate.
	managed bool
	// extra is appended to the overlay.
	extra string
}

// variants by name. Every component is in at least one.
func variants() map[string]variant {
	return map[string]variant{
		"base":               {resource: "install/base"},
		"whole":              {},
		"cloud-init-secrets": {components: []string{"cloud-init-secrets"}},
		"namespaced-writes":  {components: []string{"namespaced-writes"}},
		"no-hook-token":      {components: []string{"no-hook-token"}},
		"least":              {components: []string{"no-hook-token", "namespaced-writes"}},
		"cert-manager":       {components: []string{"cert-manager"}, managed: true},
		"everything":         {components: []string{"cert-manager", "cloud-init-secrets", "namespaced-writes"}, managed: true},
	}
}

// rendered caches the objects of variants: each is rendered by a kubectl process.
var rendered = map[string][]*unstructured.Unstructured{}

// render returns the objects of a variant.
func render(t *testing.T, v variant) []*unstructured.Unstructured {
	t.Helper()
	key := fmt.Sprintf("%+v", v)
	if rendered[key] == nil {
		rendered[key] = controlplanetest.Kustomize(t, overlay(t, checkout(t, v.managed), v))
	}
	out := make([]*unstructured.Unstructured, len(rendered[key]))
	for i, object := range rendered[key] {
		out[i] = object.DeepCopy()
	}
	return out
}

// checkout copies the files of a checkout and runs certs.
func checkout(t *testing.T, managed bool) string {
	t.Helper()
	root := t.TempDir()
	source, target := "..", filepath.Join(root, "metacontroller")
	for _, name := range []string{"kustomization.yaml", "compositecontroller.yaml"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(target, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(target, name), content, 0o644))
	}
	for _, name := range []string{"base", "components", "crds"} {
		require.NoError(t, os.CopyFS(filepath.Join(target, "install", name), os.DirFS(name)))
	}
	opts := certs.DefaultOptions()
	opts.Dir = filepath.Join(target, "install", "tls")
	opts.ExtraNames = []string{"127.0.0.1"}
	if managed {
		opts.CA = authority(t)
	}
	_, err := certs.Ensure(opts, time.Now())
	require.NoError(t, err)
	return root
}

// overlay writes a user's kustomization and returns its folder.
func overlay(t *testing.T, root string, v variant) string {
	t.Helper()
	dir := filepath.Join(root, "overlay")
	var b strings.Builder
	fmt.Fprintf(&b, "resources:\n- %s\n", filepath.Join("../metacontroller", v.resource))
	if len(v.components) > 0 {
		b.WriteString("components:\n")
	}
	for _, component := range v.components {
		fmt.Fprintf(&b, "- ../metacontroller/install/components/%s\n", component)
	}
	b.WriteString(v.extra)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(b.String()), 0o644))
	return dir
}

// find returns the one object of a kind and name.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			found = append(found, o)
		}
	}
	require.Len(t, found, 1, "%s %s", kind, name)
	return found[0]
}

// has reports whether there is such an object.
func has(objects []*unstructured.Unstructured, kind, name string) bool {
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return true
		}
	}
	return false
}
