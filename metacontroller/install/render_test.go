package install_test

import (
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// start is the time of fake clocks.
func start() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// authority returns an external CA, such as cert-manager's.
func authority(t *testing.T) []*x509.Certificate {
	t.Helper()
	opts := certs.DefaultOptions()
	opts.Dir = filepath.Join(t.TempDir(), "ca")
	_, err := certs.Ensure(opts, time.Now())
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(opts.Dir, certs.FileCACert))
	require.NoError(t, err)
	parsed, err := certs.ParseAuthorities(content)
	require.NoError(t, err)
	return parsed
}

func TestEveryVariantRenders(t *testing.T) {
	for name, v := range variants() {
		t.Run(name, func(t *testing.T) {
			objects := render(t, v)
			require.NotEmpty(t, objects)
			assert.Equal(t, v.resource == "", has(objects, metacontroller.ControllerKind, metacontroller.ControllerName))
			assert.Equal(t, v.resource == "" && !v.managed, has(objects, "Secret", certs.SecretTLS), "certs or cert-manager writes it, not both")
			for _, o := range objects {
				assert.NotEqual(t, "default", o.GetNamespace())
			}
		})
	}
}

func TestEveryComponentIsInAVariant(t *testing.T) {
	entries, err := os.ReadDir("components")
	require.NoError(t, err)
	var used []string
	for _, v := range variants() {
		used = append(used, v.components...)
	}
	whole, err := os.ReadFile("../kustomization.yaml")
	require.NoError(t, err)
	for _, entry := range entries {
		inWhole := strings.Contains(string(whole), "\n- install/components/"+entry.Name()+"\n")
		assert.True(t, inWhole || slices.Contains(used, entry.Name()), entry.Name())
	}
}

// The one kustomization that needs the network is only read here.
func TestUpstreamCRDsArePinned(t *testing.T) {
	content, err := os.ReadFile("crds/kustomization.yaml")
	require.NoError(t, err)
	var k struct {
		APIVersion, Kind string
		Resources        []string
	}
	require.NoError(t, yaml.UnmarshalStrict(content, &k))
	require.Len(t, k.Resources, 1)
	assert.Regexp(t, `^https://raw\.githubusercontent\.com/metacontroller/metacontroller/[0-9a-f]{40}/manifests/production/metacontroller-crds-v1\.yaml$`, k.Resources[0])
	assert.Contains(t, string(content), imageTag(t), "the comment names the release of the image")
}

func imageTag(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("base/kustomization.yaml")
	require.NoError(t, err)
	var k struct {
		Images []struct{ Name, NewTag string } `json:"images"`
	}
	require.NoError(t, yaml.Unmarshal(content, &k))
	require.Len(t, k.Images, 1)
	require.NotEmpty(t, k.Images[0].NewTag)
	return k.Images[0].NewTag
}

func TestNothingElseNeedsTheNetwork(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		require.NoError(t, err)
		if filepath.Base(path) == "kustomization.yaml" && !strings.HasPrefix(path, "crds") {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.NotContains(t, string(content), "://", path)
		}
		return nil
	})
	require.NoError(t, err)
}

// The files of certs match the CompositeController: a hook whose host is in no
// endpointConfigs is called without CA and token.
func TestControllerAndMaterialFit(t *testing.T) {
	for name, v := range variants() {
		if v.resource != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			objects := render(t, v)
			cc := find(t, objects, metacontroller.ControllerKind, metacontroller.ControllerName)
			endpoints, _, err := unstructured.NestedSlice(cc.Object, "spec", "endpointConfigs")
			require.NoError(t, err)
			require.Len(t, endpoints, 1)
			endpoint := endpoints[0].(map[string]any)
			for hook, address := range hookURLs(t, cc) {
				u, err := url.Parse(address)
				require.NoError(t, err)
				assert.Equal(t, "https", u.Scheme, hook)
				assert.Equal(t, endpoint["host"], u.Host, hook)
			}
			inline, _, _ := unstructured.NestedString(endpoint, "caBundle", "inline")
			_, err = certs.ParseAuthorities([]byte(inline))
			require.NoError(t, err)

			if slices.Contains(v.components, "no-hook-token") {
				assert.NotContains(t, endpoint, "authorization")
				assert.False(t, has(objects, "Secret", certs.SecretToken))
				return
			}
			assertTokenIsThere(t, objects, endpoint)
		})
	}
}

func assertTokenIsThere(t *testing.T, objects []*unstructured.Unstructured, endpoint map[string]any) {
	t.Helper()
	ref, _, err := unstructured.NestedStringMap(endpoint, "authorization", "secretRef")
	require.NoError(t, err)
	secret := controlplanetest.Convert[corev1.Secret](t, find(t, objects, "Secret", ref["name"]))
	assert.Equal(t, secret.Namespace, ref["namespace"])
	assert.NotEmpty(t, secret.Data[ref["key"]])
}

func hookURLs(t *testing.T, cc *unstructured.Unstructured) map[string]string {
	t.Helper()
	urls := map[string]string{}
	for _, hook := range []string{metacontroller.HookCustomize, metacontroller.HookSync, metacontroller.HookFinalize} {
		address, found, err := unstructured.NestedString(cc.Object, "spec", "hooks", hook, "webhook", "url")
		require.NoError(t, err)
		require.True(t, found, hook)
		urls[hook] = address
	}
	return urls
}

// cert-manager's certificate must be valid for the host that Metacontroller calls.
func TestCertManagerNames(t *testing.T) {
	objects := render(t, variants()["cert-manager"])
	names, _, err := unstructured.NestedStringSlice(find(t, objects, "Certificate", certs.SecretTLS).Object, "spec", "dnsNames")
	require.NoError(t, err)
	assert.Equal(t, certs.DefaultOptions().Names(), names)
	secret, _, _ := unstructured.NestedString(find(t, objects, "Certificate", certs.SecretTLS).Object, "spec", "secretName")
	assert.Equal(t, certs.SecretTLS, secret)
	isCA, _, _ := unstructured.NestedBool(find(t, objects, "Certificate", "webhooks-ca").Object, "spec", "isCA")
	assert.True(t, isCA)
}
