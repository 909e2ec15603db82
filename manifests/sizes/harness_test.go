package sizes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func uidOf(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)) }

// fillFleet creates Proxies that are Ready, with a Healthy ProxyProbe each, and a
// prober's sign of life that lasts.
func fillFleet(b *testing.B, cp *controlplane.ControlPlane, size int) {
	b.Helper()
	require.NoError(b, controlplane.InstallCRDs(b.Context(), cp.RESTConfig(), crd.Manifests()...))
	cfg := rest.CopyConfig(cp.RESTConfig())
	cfg.QPS = -1
	objects, err := dynamic.NewForConfig(cfg)
	require.NoError(b, err)
	proxies := objects.Resource(v1alpha1.ProxyResource()).Namespace("default")
	var g errgroup.Group
	g.SetLimit(32)
	for n := range size {
		g.Go(func() error {
			host := fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255)
			created, err := proxies.Create(b.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Proxy", "metadata": map[string]any{"name": fmt.Sprintf("p%d", n)},
				"spec": map[string]any{
					"mode": "External", "endpoint": map[string]any{"host": host, "port": int64(3128)},
					"attributes": map[string]any{"geo": "eu", "tier": "gold"},
				},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			created.Object["status"] = map[string]any{
				"phase": "Ready", "ip": host, "port": int64(3128), "instanceID": fmt.Sprint("external-", n), "observedGeneration": created.GetGeneration(),
			}
			if _, err = proxies.UpdateStatus(b.Context(), created, metav1.UpdateOptions{}); err != nil {
				return err
			}
			return addProbe(b.Context(), objects, created)
		})
	}
	require.NoError(b, g.Wait())
	typed, err := kubernetes.NewForConfig(cfg)
	require.NoError(b, err)
	_, err = typed.CoordinationV1().Leases("default").Create(b.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "prober-0-of-1", Labels: map[string]string{v1alpha1.LabelProberShard: "0-of-1"}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
	}, metav1.CreateOptions{})
	require.NoError(b, err)
}

// addProbe makes the ProxyProbe of a Proxy, with the prober's verdict.
func addProbe(ctx context.Context, objects dynamic.Interface, proxy *unstructured.Unstructured) error {
	status := proxy.Object["status"].(map[string]any)
	probes := objects.Resource(v1alpha1.ProxyProbeResource()).Namespace(proxy.GetNamespace())
	created, err := probes.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "ProxyProbe",
		"metadata": map[string]any{"name": proxy.GetName(), "ownerReferences": []any{map[string]any{
			"apiVersion": proxy.GetAPIVersion(), "kind": proxy.GetKind(), "name": proxy.GetName(), "uid": string(proxy.GetUID()), "controller": true,
		}}},
		"spec": map[string]any{"instanceID": status["instanceID"], "host": status["ip"], "port": status["port"]},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Object["status"] = map[string]any{
		"instanceID": status["instanceID"], "verdict": "Healthy", "reason": "ProbeSucceeded", "message": "every stage worked",
		"latencyMillis": int64(42), "lastProbeTime": time.Now().UTC().Format(time.RFC3339), "observedGeneration": created.GetGeneration(),
	}
	_, err = probes.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}
