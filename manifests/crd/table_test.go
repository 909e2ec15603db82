package crd_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

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
	fresh := create(t, "Proxy", managed())
	tbl := table(t, "proxies", fresh.GetName())
	assert.Equal(t, []string{"Name", "Mode", "Provider", "Phase", "IP", "Healthy", "Age"}, columns(tbl, 0))
	assert.Equal(t, []string{"Reason"}, columns(tbl, 1))
	assert.Equal(t, "Managed", cell(t, tbl, "Mode"))
	assert.Equal(t, "pods", cell(t, tbl, "Provider"))
	for _, column := range []string{"Phase", "IP", "Healthy", "Reason"} {
		assert.Empty(t, cell(t, tbl, column), "%s is not known yet", column)
	}
	assert.NotEmpty(t, cell(t, tbl, "Age"))
}

func TestReasonColumnShowsTheFirstConditionThatIsNotTrue(t *testing.T) {
	for name, tc := range map[string]struct {
		provisioned, healthy []string // status, reason
		want                 any
	}{
		"all true":        {[]string{"True", "Created"}, []string{"True", "ProbeSucceeded"}, nil},
		"unhealthy":       {[]string{"True", "Created"}, []string{"False", "DialFailed"}, "DialFailed"},
		"no verdict":      {[]string{"True", "Created"}, []string{"Unknown", "NotProbed"}, "NotProbed"},
		"not provisioned": {[]string{"False", "Provisioning"}, []string{"Unknown", "NotProbed"}, "Provisioning"},
	} {
		t.Run(name, func(t *testing.T) {
			stored, err := updateStatus(t, create(t, "Proxy", managed()), map[string]any{
				"phase": "Ready", "ip": "127.0.0.9",
				"conditions": []any{condition("Provisioned", tc.provisioned[0], tc.provisioned[1]), condition("Healthy", tc.healthy[0], tc.healthy[1])},
			})
			require.NoError(t, err)
			tbl := table(t, "proxies", stored.GetName())
			assert.Equal(t, tc.want, cell(t, tbl, "Reason"))
			assert.Equal(t, tc.healthy[0], cell(t, tbl, "Healthy"))
			assert.Equal(t, "Ready", cell(t, tbl, "Phase"))
			assert.Equal(t, "127.0.0.9", cell(t, tbl, "IP"))
		})
	}
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
	assets := controlplanetest.Assets(t)
	name := create(t, "Proxy", managed()).GetName()
	run := func(args ...string) string {
		args = append([]string{"--kubeconfig", api.get(t).Kubeconfig(), "--cache-dir", t.TempDir()}, args...)
		out, err := exec.CommandContext(t.Context(), assets.Kubectl, args...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	lines := strings.Split(run("get", "px", name, "-o", "wide"), "\n")
	assert.Equal(t, []string{"NAME", "MODE", "PROVIDER", "PHASE", "IP", "HEALTHY", "REASON", "AGE"}, strings.Fields(lines[0]))
	assert.Equal(t, []string{name, "Managed", "pods"}, strings.Fields(lines[1])[:3])
	assert.Contains(t, run("explain", "px.spec.maxLeases"), "0 makes it unleasable")
	assert.Contains(t, run("get", "crawl"), name)
}
