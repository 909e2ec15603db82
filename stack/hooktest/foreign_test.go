package hooktest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// A ProxyProbe that somebody else has made keeps ours from being made, and no
// event tells the hook. The Proxy says so, and is well as soon as it is deleted.
// Server-side apply takes it over instead.
func TestAForeignProbeUnderAProxysName(t *testing.T) {
	const name = "fra-1"
	timing := quick(driftPoll)
	timing.ProvisioningDeadline = time.Second
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			foreign := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion().String(), "kind": "ProxyProbe",
				"metadata": map[string]any{"name": name},
				"spec":     map[string]any{"instanceID": "mine", "host": "192.0.2.1", "port": int64(3128)},
			}}
			_, err := l.In(v1alpha1.ProxyProbeResource()).Create(t.Context(), foreign, metav1.CreateOptions{})
			require.NoError(t, err)
			l.Drive(d, release{providers: providers, timing: timing}.hooks(t).Handler(nil))
			l.PlayKubelet()
			l.PlayProber()
			l.CreateProxies(Managed(name, provider))
			if d.Strategy != upstream.ServerSideApply {
				l.Eventually("it is said what is wrong", func() bool {
					c := meta.FindStatusCondition(l.Proxy(name).Status.Conditions, v1alpha1.ConditionHealthy)
					return c != nil && strings.Contains(c.Message, "no ProxyProbe default/"+name)
				})
				require.NoError(t, l.In(v1alpha1.ProxyProbeResource()).Delete(t.Context(), name, metav1.DeleteOptions{}))
			}
			l.Eventually("Ready", func() bool { return l.inPhase(v1alpha1.PhaseReady) == 1 })
		})
	}
}
