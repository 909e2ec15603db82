package crd_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

const namespace = "default"

// server is one API server with our CRDs for all tests here.
type server struct {
	controlplanetest.Shared
	install sync.Once
	err     error
}

var api server

func TestMain(m *testing.M) { goleak.VerifyTestMain(stopping{m}) }

// stopping stops the API server after the tests and before the search for leaks.
type stopping struct{ *testing.M }

func (s stopping) Run() int {
	code := s.M.Run()
	if err := api.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func (s *server) get(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp := s.Get(t)
	s.install.Do(func() { s.err = controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...) })
	require.NoError(t, s.err)
	return cp
}

// resource is a client for "Proxy", which "" means too, or "ProxyProbe".
func resource(t *testing.T, kind string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(api.get(t).RESTConfig())
	require.NoError(t, err)
	if kind == "ProxyProbe" {
		return client.Resource(v1alpha1.ProxyProbeResource()).Namespace(namespace)
	}
	return client.Resource(v1alpha1.ProxyResource()).Namespace(namespace)
}

// object has a name of its own, made by the server. spec may be nil.
func object(kind string, spec map[string]any) *unstructured.Unstructured {
	if kind == "" {
		kind = "Proxy"
	}
	content := map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(),
		"kind":       kind,
		"metadata":   map[string]any{"generateName": strings.ToLower(kind) + "-"},
	}
	if spec != nil {
		content["spec"] = spec
	}
	return &unstructured.Unstructured{Object: content}
}

func create(t *testing.T, kind string, spec map[string]any) *unstructured.Unstructured {
	t.Helper()
	created, err := resource(t, kind).Create(t.Context(), object(kind, spec), strict())
	require.NoError(t, err)
	return created
}

func strict() metav1.CreateOptions {
	return metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
}

// load reads a list of cases. YAML decodes as JSON does, with float64 for
// numbers, which the server reads as integers again.
func load[T any](t *testing.T, path string) []T {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var cases []T
	require.NoError(t, yaml.UnmarshalStrict(content, &cases))
	require.NotEmpty(t, cases)
	return cases
}
