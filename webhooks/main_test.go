package webhooks

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

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

// api is a real API server with our CRDs, for the tests that need one.
var api apiServer

type apiServer struct {
	controlplanetest.Shared
	once sync.Once
	err  error
}

// client returns one for children of that kind in the namespace crawl, which
// holds to the Pod Security Standard "restricted".
func (s *apiServer) client(t *testing.T, kind string) dynamic.ResourceInterface {
	t.Helper()
	cp := s.Get(t)
	s.once.Do(func() { s.err = s.prepare(t, cp) })
	require.NoError(t, s.err)
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	if kind == "ProxyProbe" {
		resource = v1alpha1.ProxyProbeResource()
	}
	return client.Resource(resource).Namespace("crawl")
}

func (s *apiServer) prepare(t *testing.T, cp *controlplane.ControlPlane) error {
	if err := controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "crawl", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	return controlplane.EnsureServiceAccount(t.Context(), client, namespace.Name)
}
