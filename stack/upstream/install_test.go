package upstream

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// shared is the API server of the tests here.
var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }

func TestKinds(t *testing.T) {
	manifests, err := kinds()
	require.NoError(t, err)
	assert.Len(t, manifests, 3)
}

func TestApply(t *testing.T) {
	cfg := shared.Get(t).RESTConfig()
	require.NoError(t, InstallKinds(t.Context(), cfg))
	require.NoError(t, InstallKinds(t.Context(), cfg), "again")
	c, err := metacontroller.DefaultController()
	require.NoError(t, err)
	require.NoError(t, c.SetHookBaseURL("http://127.0.0.1:1/hooks"))
	require.NoError(t, Apply(t.Context(), cfg, c))
	first := read(t, c.Name)
	url, _, _ := unstructured.NestedString(first.Object, "spec", "hooks", "sync", "webhook", "url")
	assert.Equal(t, "http://127.0.0.1:1/hooks/sync", url)
	assert.NotContains(t, first.Object, "status")

	require.NoError(t, Apply(t.Context(), cfg, c))
	assert.Equal(t, first.GetResourceVersion(), read(t, c.Name).GetResourceVersion(), "nothing changed")

	require.NoError(t, c.SetHookBaseURL("http://127.0.0.1:2/hooks"))
	require.NoError(t, Apply(t.Context(), cfg, c))
	assert.Equal(t, first.GetGeneration()+1, read(t, c.Name).GetGeneration(), "Metacontroller starts the controller anew")
}

func TestApplyErrorNamesTheController(t *testing.T) {
	cfg := shared.Get(t).RESTConfig()
	cfg.BearerToken = "wrong"
	c, err := metacontroller.DefaultController()
	require.NoError(t, err)
	assert.ErrorContains(t, Apply(t.Context(), cfg, c), "apply CompositeController proxies")
}

func read(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	client, err := dynamic.NewForConfig(shared.Get(t).RESTConfig())
	require.NoError(t, err)
	object, err := client.Resource(ControllerResource()).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return object
}
