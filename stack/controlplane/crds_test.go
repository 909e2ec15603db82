package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
)

func testInstallCRDs(t *testing.T, cp *ControlPlane) {
	require.NoError(t, InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...))
	require.NoError(t, InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...), "again changes nothing")
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	for _, resource := range []string{"proxies", "proxyprobes"} {
		gvr := schema.GroupVersionResource{Group: "crawl.example.com", Version: "v1alpha1", Resource: resource}
		_, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		assert.NoError(t, err)
	}

	refused := []byte(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: wrong}, spec: {group: example.com}}`)
	assert.ErrorContains(t, InstallCRDs(t.Context(), cp.RESTConfig(), refused), "install CRD wrong")
}

func TestReadCRD(t *testing.T) {
	var names []string
	for _, manifest := range crd.Manifests() {
		object, served, err := readCRD(manifest)
		require.NoError(t, err)
		require.Len(t, served, 1)
		assert.Equal(t, served[0].Resource+"."+served[0].Group, object.GetName())
		names = append(names, object.GetName())
	}
	assert.Equal(t, []string{"proxies.crawl.example.com", "proxyprobes.crawl.example.com"}, names)
}

func TestReadCRDRejectsOtherObjects(t *testing.T) {
	for name, tc := range map[string]struct{ manifest, want string }{
		"not YAML":       {"a: [", "read a manifest"},
		"another kind":   {"kind: Pod\nmetadata: {name: p}", `Pod "p"`},
		"nothing":        {"", "not one of a CustomResourceDefinition"},
		"wrong versions": {"kind: CustomResourceDefinition\nspec: {versions: 3}", "versions"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := readCRD([]byte(tc.manifest))
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

func TestReadCRDSkipsVersionsNotServed(t *testing.T) {
	_, served, err := readCRD([]byte(`{kind: CustomResourceDefinition, spec: {group: g, names: {plural: p}, versions: [{name: v1, served: false}, {name: v2, served: true}]}}`))
	require.NoError(t, err)
	assert.Equal(t, []schema.GroupVersionResource{{Group: "g", Version: "v2", Resource: "p"}}, served)
}
