package crd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type createCase struct {
	Name    string         `json:"name"`
	Kind    string         `json:"kind,omitempty"`
	Spec    map[string]any `json:"spec,omitempty"`
	Refused string         `json:"refused,omitempty"`
}

func TestCreate(t *testing.T) {
	for _, tc := range load[createCase](t, "testdata/create.yaml") {
		t.Run(tc.Name, func(t *testing.T) {
			options := strict()
			options.DryRun = []string{metav1.DryRunAll}
			_, err := resource(t, tc.Kind).Create(t.Context(), object(tc.Kind, tc.Spec), options)
			checkRefusal(t, err, tc.Refused)
		})
	}
}

type updateCase struct {
	Name    string         `json:"name"`
	From    map[string]any `json:"from"`
	To      map[string]any `json:"to"`
	Refused string         `json:"refused,omitempty"`
}

func TestUpdate(t *testing.T) {
	for _, tc := range load[updateCase](t, "testdata/update.yaml") {
		t.Run(tc.Name, func(t *testing.T) {
			stored := create(t, "Proxy", tc.From)
			stored.Object["spec"] = tc.To
			_, err := resource(t, "Proxy").Update(t.Context(), stored, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
			checkRefusal(t, err, tc.Refused)
		})
	}
}

func checkRefusal(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		assert.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, want)
	assert.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%v", err)
	assert.NotContains(t, err.Error(), "rule evaluation error", "a rule must refuse in its own words")
}

func TestUnknownFieldsArePrunedUnlessStrict(t *testing.T) {
	given := object("Proxy", map[string]any{"mode": "Managed", "provider": "pods", "unknown": "x"})
	stored, err := resource(t, "Proxy").Create(t.Context(), given, metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore})
	require.NoError(t, err)
	assert.NotContains(t, stored.Object["spec"], "unknown")
}

func TestTooMuchIsRefused(t *testing.T) {
	many := map[string]any{}
	for i := range 33 {
		many[strings.Repeat("a", i+1)] = "x"
	}
	for name, tc := range map[string]struct {
		field string
		value any
		want  string
	}{
		"33 attributes":         {"attributes", many, "spec.attributes: Too many: 33: must have at most 32 items"},
		"long attribute":        {"attributes", map[string]any{"a": strings.Repeat("x", 129)}, "spec.attributes.a: Too long"},
		"long user data":        {"cloudInit", map[string]any{"inline": strings.Repeat("x", 131073)}, "spec.cloudInit.inline: Too long"},
		"long provider":         {"provider", strings.Repeat("x", 64), "spec.provider: Too long"},
		"21 status codes":       {"healthCheck", map[string]any{"expectedStatusCodes": codes(21)}, "spec.healthCheck.expectedStatusCodes: Too many: 21: must have at most 20 items"},
		"long probe URL":        {"healthCheck", map[string]any{"probeURL": "https://x/" + strings.Repeat("x", 2048)}, "spec.healthCheck.probeURL: Too long"},
		"long name of a Secret": {"credentialsRef", map[string]any{"name": strings.Repeat("x", 254)}, "spec.credentialsRef.name: Too long"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{"mode": "Managed", "provider": "pods", tc.field: tc.value}
			_, err := resource(t, "Proxy").Create(t.Context(), object("Proxy", spec), strict())
			checkRefusal(t, err, tc.want)
		})
	}
}

func codes(n int) []any {
	var out []any
	for i := range n {
		out = append(out, int64(200+i))
	}
	return out
}

type defaultsCase struct {
	Name   string         `json:"name"`
	Kind   string         `json:"kind,omitempty"`
	Spec   map[string]any `json:"spec"`
	Stored map[string]any `json:"stored"`
}

func TestDefaults(t *testing.T) {
	for _, tc := range load[defaultsCase](t, "testdata/defaults.yaml") {
		t.Run(tc.Name, func(t *testing.T) {
			created := create(t, tc.Kind, tc.Spec)
			stored, err := resource(t, tc.Kind).Get(t.Context(), created.GetName(), metav1.GetOptions{})
			require.NoError(t, err)
			assert.JSONEq(t, encode(t, tc.Stored), encode(t, stored.Object["spec"]))
		})
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	content, err := (&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "X", "v": v}}).MarshalJSON()
	require.NoError(t, err)
	return string(content)
}
