package standin

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

func ref(apiVersion, resource string) metacontroller.ResourceRef {
	return metacontroller.ResourceRef{APIVersion: apiVersion, Resource: resource}
}

func TestResources(t *testing.T) {
	served := discovered()
	r := newResources(served, fake.NewSimpleDynamicClient(runtime.NewScheme()))

	pods, err := r.byRef(ref("v1", "pods"))
	require.NoError(t, err)
	require.Equal(t, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, pods.gvk)
	require.True(t, pods.namespaced)
	again, err := r.byKind(pods.gvk)
	require.NoError(t, err)
	require.Equal(t, "pods", again.gvr.Resource, "not pods/status, whose kind is the same")

	nodes, err := r.byKind(schema.GroupVersionKind{Version: "v1", Kind: "Node"})
	require.NoError(t, err)
	require.False(t, nodes.namespaced)
	require.Equal(t, nodes.client, nodes.in("crawl"), "a namespace means nothing to it")

	for apiVersion, want := range map[string]string{
		"v1":       "find resource gadgets in v1: the API server does not serve it; is its CRD installed?",
		"batch/v1": "find resource gadgets in batch/v1: the API server does not serve it",
		"a/b/c":    "unexpected GroupVersion string",
	} {
		_, err := r.byRef(ref(apiVersion, "gadgets"))
		require.ErrorContains(t, err, want)
	}
	served["v1"] = append(served["v1"], metav1.APIResource{Name: "gadgets", Kind: "Gadget"})
	_, err = r.byRef(ref("v1", "gadgets"))
	require.NoError(t, err, "installed in the meantime")
}

type brokenDiscovery struct{}

func (brokenDiscovery) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return nil, errors.New("connection refused")
}

func TestResourcesWithoutAPIServer(t *testing.T) {
	r := newResources(brokenDiscovery{}, nil)
	_, err := r.byKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	require.ErrorContains(t, err, "find kind Pod in v1: discover the resources of the API server: connection refused")
}

func TestWatchErrorsAreLoggedOnce(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for want, err := range map[string]error{
		"level=WARN":  apierrors.NewForbidden(secrets, "", errors.New("no")),
		"level=DEBUG": apierrors.NewResourceExpired("too old"),
	} {
		var out strings.Builder
		logWatchError(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), err)
		require.Contains(t, out.String(), want)
	}
	var out strings.Builder
	logWatchError(slog.New(slog.NewTextHandler(&out, nil)), io.EOF)
	require.Empty(t, out.String(), "everyday life")
}
