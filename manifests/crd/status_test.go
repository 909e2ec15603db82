package crd_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func managed() map[string]any { return map[string]any{"mode": "Managed", "provider": "pods"} }

func condition(kind, status, reason string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
}

func updateStatus(t *testing.T, o *unstructured.Unstructured, status map[string]any) (*unstructured.Unstructured, error) {
	t.Helper()
	o.Object["status"] = status
	return resource(t, o.GetKind()).UpdateStatus(t.Context(), o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
}

// Without the subresource each status write would raise the generation, and so
// call the hook again.
func TestStatusIsASubresource(t *testing.T) {
	for kind, tc := range map[string]struct{ spec, status map[string]any }{
		"Proxy":      {managed(), map[string]any{"phase": "Ready"}},
		"ProxyProbe": {map[string]any{"instanceID": "i", "host": "h", "port": int64(1)}, map[string]any{"verdict": "Healthy"}},
	} {
		t.Run(kind, func(t *testing.T) {
			given := object(kind, tc.spec)
			given.Object["status"] = tc.status
			created, err := resource(t, kind).Create(t.Context(), given, strict())
			require.NoError(t, err)
			assert.NotContains(t, created.Object, "status", "a create sets no status")

			edited := created.DeepCopy()
			edited.Object["spec"].(map[string]any)["port"] = int64(9)
			written, err := updateStatus(t, edited, tc.status)
			require.NoError(t, err)
			assert.Equal(t, created.Object["spec"], written.Object["spec"], "a status write changes no spec")
			assert.Equal(t, created.GetGeneration(), written.GetGeneration())

			written.Object["status"] = map[string]any{}
			written.Object["spec"].(map[string]any)["port"] = int64(9)
			updated, err := resource(t, kind).Update(t.Context(), written, metav1.UpdateOptions{})
			require.NoError(t, err)
			assert.Equal(t, tc.status, updated.Object["status"], "an edit changes no status")
			assert.Equal(t, created.GetGeneration()+1, updated.GetGeneration())
		})
	}
}

func TestStatusIsValidated(t *testing.T) {
	for name, tc := range map[string]struct {
		status map[string]any
		want   string
	}{
		"whole": {map[string]any{
			"phase": "Ready", "reason": "ProbeTargetDown", "exitIP": "192.0.2.9", "ip": "127.0.0.1", "port": int64(3128), "providerID": "default/p", "instanceID": "i", "specHash": "v1-x",
			"latencyMillis": int64(0), "lastHealthCheckTime": "2026-01-02T03:04:05Z", "observedGeneration": int64(1),
			"conditions": []any{condition("Provisioned", "True", "Created"), condition("Healthy", "Unknown", "Waiting")},
		}, ""},
		"unknown phase":      {map[string]any{"phase": "Lost"}, `status.phase: Unsupported value: "Lost"`},
		"negative latency":   {map[string]any{"latencyMillis": int64(-1)}, "latencyMillis in body should be greater than or equal to 0"},
		"unknown field":      {map[string]any{"address": "x"}, `unknown field "status.address"`},
		"condition twice":    {map[string]any{"conditions": []any{condition("A", "True", "R"), condition("A", "True", "R")}}, "status.conditions[1]: Duplicate value"},
		"condition's status": {map[string]any{"conditions": []any{condition("A", "Maybe", "R")}}, `status.conditions[0].status: Unsupported value: "Maybe"`},
		"condition's reason": {map[string]any{"conditions": []any{condition("A", "True", "")}}, "conditions[0].reason in body should be at least 1 chars long"},
		"nine conditions":    {map[string]any{"conditions": nineConditions()}, "status.conditions: Too many: 9: must have at most 8 items"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := updateStatus(t, create(t, "Proxy", managed()), tc.status)
			checkRefusal(t, err, tc.want)
		})
	}
}

func nineConditions() []any {
	var out []any
	for _, name := range "ABCDEFGHI" {
		out = append(out, condition(string(name), "True", "R"))
	}
	return out
}

func TestProbeStatusIsValidated(t *testing.T) {
	spec := map[string]any{"instanceID": "i", "host": "h", "port": int64(1)}
	for name, tc := range map[string]struct {
		status map[string]any
		want   string
	}{
		"whole": {map[string]any{
			"instanceID": "i", "verdict": "Unhealthy", "reason": "DialFailed", "message": "m", "latencyMillis": int64(12),
			"lastTransitionTime": "2026-01-02T03:04:05Z", "lastProbeTime": "2026-01-02T03:04:05Z", "exitIP": "192.0.2.9", "observedGeneration": int64(1),
		}, ""},
		"unknown verdict": {map[string]any{"verdict": "Perhaps"}, `status.verdict: Unsupported value: "Perhaps"`},
		"not a time":      {map[string]any{"lastProbeTime": "now"}, "status.lastProbeTime"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := updateStatus(t, create(t, "ProxyProbe", spec), tc.status)
			checkRefusal(t, err, tc.want)
		})
	}
}
