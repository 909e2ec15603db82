package hooktest

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Judge writes a verdict on an instance, as the prober does.
func (l *Lab) Judge(ctx context.Context, probe, instanceID string, verdict v1alpha1.Verdict, reason string) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"instanceID": instanceID, "verdict": verdict, "reason": reason, "message": "as the test says",
		"latencyMillis": 12, "lastProbeTime": metav1.Now(), "lastTransitionTime": metav1.Now(),
	}})
	if err != nil {
		return fmt.Errorf("encode a verdict: %w", err)
	}
	_, err = l.In(v1alpha1.ProxyProbeResource()).Patch(ctx, probe, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// PlayProber writes the verdict Healthy for every instance that is to be probed, until the test
// ends.
func (l *Lab) PlayProber() {
	l.play(v1alpha1.ProxyProbeResource(), func(ctx context.Context, obj *unstructured.Unstructured) error {
		probe := &v1alpha1.ProxyProbe{}
		if err := v1alpha1.FromUnstructured(obj.Object, probe); err != nil {
			return err
		}
		if probe.Status.InstanceID == probe.Spec.InstanceID || probe.DeletionTimestamp != nil {
			return nil
		}
		return l.Judge(ctx, probe.Name, probe.Spec.InstanceID, v1alpha1.VerdictHealthy, "ProbeSucceeded")
	})
}
