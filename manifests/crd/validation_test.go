package crd_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
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

// table fetches what kubectl get prints: the server makes it, also on its own
// terms which column is wide.
func table(t *testing.T, plural, name string) metav1.Table {
	t.Helper()
	cfg := api.get(t).RESTConfig()
	client, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	discoverer, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
	require.NoError(t, err)
	raw, err := discoverer.RESTClient().Get().
		AbsPath("/apis", v1alpha1.Group, v1alpha1.Version, "namespaces", namespace, plural, name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Do(t.Context()).Raw()
	require.NoError(t, err)
	var out metav1.Table
	require.NoError(t, json.Unmarshal(raw, &out))
	require.Len(t, out.Rows, 1)
	return out
}

// columns returns the headings of one priority: 0 is always shown, 1 only with
// -o wide.
func columns(tbl metav1.Table, priority int32) []string {
	var out []string
	for _, c := range tbl.ColumnDefinitions {
		if c.Priority == priority {
			out = append(out, c.Name)
		}
	}
	return out
}

func cell(t *testing.T, tbl metav1.Table, column string) any {
	t.Helper()
	for i, c := range tbl.ColumnDefinitions {
		if c.Name == column {
			return tbl.Rows[0].Cells[i]
		}
	}
	require.Failf(t, "no such column", "%s", column)
	return nil
}

func TestProxyColumns(t *testing.T) {
	spec := managed()
	spec["attributes"] = map[string]any{"geo": "eu", "city": "berlin"}
	fresh := create(t, "Proxy", spec)
	tbl := table(t, "proxies", fresh.GetName())
	assert.Equal(t, []string{"Name", "Mode", "Provider", "Phase", "IP", "Healthy", "Reason", "Age"}, columns(tbl, 0))
	assert.Equal(t, []string{"Attributes", "Latency-ms", "Exit-IP", "Instance"}, columns(tbl, 1))
	assert.Equal(t, "Managed", cell(t, tbl, "Mode"))
	assert.Equal(t, "pods", cell(t, tbl, "Provider"))
	assert.Equal(t, `{"city":"berlin","geo":"eu"}`, cell(t, tbl, "Attributes"))
	for _, column := range []string{"Phase", "IP", "Healthy", "Reason", "Latency-ms", "Exit-IP", "Instance"} {
		assert.Empty(t, cell(t, tbl, column), "%s is not known yet", column)
	}
	assert.NotEmpty(t, cell(t, tbl, "Age"))

	_, err := updateStatus(t, fresh, map[string]any{
		"phase": "Unhealthy", "reason": "DialFailed", "ip": "127.0.0.9", "latencyMillis": int64(12), "exitIP": "192.0.2.9", "providerID": "crawl/proxy-x",
		"conditions": []any{condition("Provisioned", "True", "Created"), condition("Healthy", "False", "DialFailed")},
	})
	require.NoError(t, err)
	tbl = table(t, "proxies", fresh.GetName())
	for column, want := range map[string]any{
		"Phase": "Unhealthy", "Reason": "DialFailed", "IP": "127.0.0.9", "Healthy": "False", "Exit-IP": "192.0.2.9", "Instance": "crawl/proxy-x",
	} {
		assert.Equal(t, want, cell(t, tbl, column), column)
	}
	assert.EqualValues(t, 12, cell(t, tbl, "Latency-ms"))
}

func TestProbeColumns(t *testing.T) {
	created := create(t, "ProxyProbe", map[string]any{"instanceID": "i", "host": "h", "port": int64(1)})
	_, err := updateStatus(t, created, map[string]any{
		"verdict": "Unhealthy", "reason": "DialFailed", "latencyMillis": int64(12), "exitIP": "192.0.2.9", "lastTransitionTime": "2026-01-02T03:04:05Z",
	})
	require.NoError(t, err)
	tbl := table(t, "proxyprobes", created.GetName())
	assert.Equal(t, []string{"Name", "Verdict", "Reason", "Latency-ms", "Exit-IP", "Since"}, columns(tbl, 0))
	assert.Equal(t, "Unhealthy", cell(t, tbl, "Verdict"))
	assert.Equal(t, "DialFailed", cell(t, tbl, "Reason"))
	assert.EqualValues(t, 12, cell(t, tbl, "Latency-ms"))
	assert.Equal(t, "192.0.2.9", cell(t, tbl, "Exit-IP"))
	assert.NotEmpty(t, cell(t, tbl, "Since"))
}

func TestShortNamesAndCategory(t *testing.T) {
	discoverer, err := discovery.NewDiscoveryClientForConfig(api.get(t).RESTConfig())
	require.NoError(t, err)
	list, err := discoverer.ServerResourcesForGroupVersion(v1alpha1.GroupVersion().String())
	require.NoError(t, err)
	short := map[string][]string{}
	for _, r := range list.APIResources {
		short[r.Name] = r.ShortNames
		if !strings.Contains(r.Name, "/") {
			assert.Equal(t, []string{"crawl"}, []string(r.Categories), r.Name)
			assert.True(t, r.Namespaced, r.Name)
		}
	}
	assert.Equal(t, map[string][]string{
		"proxies": {"px"}, "proxies/status": nil, "proxyprobes": {"pxp"}, "proxyprobes/status": nil,
	}, short)
}

// kubectl's own word for it.
func TestKubectl(t *testing.T) {
	name := create(t, "Proxy", managed()).GetName()
	lines := strings.Split(kubectl(t, "get", "px", name), "\n")
	assert.Equal(t, []string{"NAME", "MODE", "PROVIDER", "PHASE", "IP", "HEALTHY", "REASON", "AGE"}, strings.Fields(lines[0]))
	assert.Equal(t, []string{name, "Managed", "pods"}, strings.Fields(lines[1])[:3])
	lines = strings.Split(kubectl(t, "get", "px", name, "-o", "wide"), "\n")
	assert.Equal(t, []string{"ATTRIBUTES", "LATENCY-MS", "EXIT-IP", "INSTANCE"}, strings.Fields(lines[0])[8:])
	assert.Contains(t, kubectl(t, "get", "crawl"), name)
}

// kubectl runs the real one.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	assets := controlplanetest.Assets(t)
	args = append([]string{"--kubeconfig", api.get(t).Kubeconfig(), "--cache-dir", t.TempDir()}, args...)
	out, err := exec.CommandContext(t.Context(), assets.Kubectl, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// Every field has words of its own, and kubectl finds them.
func TestKubectlExplainsEveryField(t *testing.T) {
	plurals := map[string]string{"proxies.crawl.example.com": "px", "proxyprobes.crawl.example.com": "pxp"}
	for name, root := range schemas(t) {
		for _, part := range []string{"spec", "status"} {
			top := root.Properties[part]
			said := words(kubectl(t, "explain", plurals[name]+"."+part))
			assert.Contains(t, said, words(top.Description), "%s.%s", name, part)
			require.NotEmpty(t, top.Properties)
			for field, s := range top.Properties {
				require.NotEmpty(t, s.Description, "%s.%s.%s", name, part, field)
				assert.Contains(t, said, words(s.Description), "%s.%s.%s", name, part, field)
			}
		}
	}
}

// words is a text as one line: kubectl wraps it.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }
