package manifests_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
)

// webhooks sends Events with the rights of its account, and no right is left over.
func TestWebhooksHasExactlyItsRights(t *testing.T) {
	all := renderAll(t)["release"]
	c := installed(t, all)
	rec := newRecorder(t, c)
	d := sendEvents(t, all, c, rec)
	assertExact(t, all.grants(t, "webhooks"), rec)
	assertDocumented(t, d)
}

// A namespace without manifests/fleet costs the Events there, and nothing else.
func TestWebhooksWithoutRightsStillAnswers(t *testing.T) {
	all := renderAll(t)["release"]
	c := installed(t, all)
	_, errOut, err := c.run("", "delete", "-n", fleet, "rolebinding", "egress-proxies-events")
	require.NoError(t, err, errOut)
	rec := newRecorder(t, c)
	d, hooks := startWebhooks(t, all, c, rec)
	px := c.create(t, "proxies", externalSpec())
	px.Object["status"] = callSync(t, hooks, px, verdictOn(px, "Healthy", "ProbeSucceeded"))
	testwait.Eventually(t, "a line in the log", func() bool { return strings.Contains(d.String(), "an Event was not sent") }, &d.Output)
	assert.Contains(t, d.String(), "manifests/fleet")
	callSync(t, hooks, px, verdictOn(px, "Unhealthy", "DialFailed"))
}

// What people see: the Events of this very Proxy, counted up, with kubectl's own
// eyes.
func TestDescribeShowsEvents(t *testing.T) {
	all := renderAll(t)["release"]
	c := installed(t, all)
	sendEvents(t, all, c, newRecorder(t, c))
	describe := func() string {
		out, errOut, err := c.run("", "describe", "px", "login", "-n", fleet)
		require.NoError(t, err, errOut)
		return out
	}
	out := describe()
	assert.Regexp(t, `Normal +Healthy +.* +egress-proxies +ProbeSucceeded at 192\.0\.2\.7:8080, targets see 198\.51\.100\.7\n`, out)
	assert.Regexp(t, `Warning +Unhealthy +.*\(x2 over .*\) +egress-proxies +DialFailed: dial: connection refused\n`, out)

	_, errOut, err := c.run("", "delete", "px", "login", "-n", fleet)
	require.NoError(t, err, errOut)
	c.create(t, "proxies", externalSpec())
	assert.Regexp(t, `Events: +<none>`, describe(), "the new one of that name has none yet")
	list, errOut, err := c.run("", "get", "events", "-n", fleet)
	require.NoError(t, err, errOut)
	assert.Contains(t, list, "proxy/login", "those of the old one can still be read")
}

func externalSpec() map[string]any {
	return map[string]any{"mode": "External", "endpoint": map[string]any{"host": "192.0.2.7", "port": int64(8080)}}
}

// startWebhooks runs the container of webhooks, without TLS and token, with the
// account's own access to the API server.
func startWebhooks(t *testing.T, all objects, c *cluster, rec *recorder) (d *daemon, hooks string) {
	t.Helper()
	container := all.container(t, "webhooks", "webhooks")
	container.Args = slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--tls-") || strings.HasPrefix(arg, "--token-file") || strings.HasPrefix(arg, "--cloud-socket")
	})
	container.Args = append(container.Args, "--insecure")
	d = startContainer(t, container, map[string]string{
		"listen": "127.0.0.1:0", "ops-addr": "127.0.0.1:0", "providers-config": "../examples/providers.yaml", "kubeconfig": rec.kubeconfig(t, c, "webhooks"),
	})
	return d, "http://" + d.Address(t, "hooks listening")
}

// sendEvents has webhooks send an Event that is new, and one that is counted up.
func sendEvents(t *testing.T, all objects, c *cluster, rec *recorder) *daemon {
	t.Helper()
	d, hooks := startWebhooks(t, all, c, rec)
	px := c.create(t, "proxies", externalSpec())
	for _, verdict := range []struct{ is, reason, since string }{
		{"Healthy", "ProbeSucceeded", "2026-01-02T03:04:05Z"},
		{"Unhealthy", "DialFailed", "2026-01-02T03:05:05Z"},
		{"Healthy", "ProbeSucceeded", "2026-01-02T03:06:05Z"},
		{"Unhealthy", "DialFailed", "2026-01-02T03:07:05Z"},
	} {
		status := callSync(t, hooks, px, verdictOn(px, verdict.is, verdict.reason))
		for _, condition := range status["conditions"].([]any) {
			condition.(map[string]any)["lastTransitionTime"] = verdict.since // another one each time, however fast this is
		}
		px.Object["status"] = status
	}
	testwait.Eventually(t, "four Events", func() bool {
		list, err := c.Typed.CoreV1().Events(fleet).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		told := map[string]int32{}
		for _, e := range list.Items {
			if e.InvolvedObject.UID == px.GetUID() {
				told[e.Type+" "+e.Reason] += e.Count
			}
		}
		return told["Normal Healthy"] == 2 && told["Warning Unhealthy"] == 2
	}, &d.Output)
	return d
}

// verdictOn is the ProxyProbe of an External Proxy.
func verdictOn(px *unstructured.Unstructured, verdict, reason string) map[string]any {
	id := v1alpha1.ExternalInstanceID(v1alpha1.Endpoint{Host: "192.0.2.7", Port: 8080})
	message, exit := "", "198.51.100.7"
	if verdict == "Unhealthy" {
		message, exit = "dial: connection refused", ""
	}
	return map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "ProxyProbe",
		"metadata": map[string]any{"name": px.GetName(), "namespace": px.GetNamespace(), "uid": "probe-uid"},
		"spec":     map[string]any{"instanceID": id, "host": "192.0.2.7", "port": 8080},
		"status":   map[string]any{"instanceID": id, "verdict": verdict, "reason": reason, "message": message, "exitIP": exit},
	}
}

// callSync calls the sync hook about a Proxy, and returns the status of its answer.
func callSync(t *testing.T, hooks string, px *unstructured.Unstructured, probe map[string]any) map[string]any {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"controller": map[string]any{}, "parent": px.Object, "related": map[string]any{}, "finalizing": false,
		"children": map[string]any{
			"Pod.v1": map[string]any{},
			"ProxyProbe." + v1alpha1.GroupVersion().String(): map[string]any{px.GetNamespace() + "/" + px.GetName(): probe},
		},
	})
	require.NoError(t, err)
	code, answer := post(t, hooks+"/hooks/sync", "", string(body))
	require.Equal(t, http.StatusOK, code, answer)
	var got struct{ Status map[string]any }
	require.NoError(t, json.Unmarshal([]byte(answer), &got))
	return got.Status
}
