package manifests_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// installed applies a variant for real, so that RBAC counts.
func installed(t *testing.T, all objects) *cluster {
	t.Helper()
	c := newCluster(t)
	c.namespaces(t, all)
	c.apply(t, all.ofKind("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"))
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "login", Labels: map[string]string{v1alpha1.LabelCredentials: "true"}},
		StringData: map[string]string{"username": "crawler", "password": "CANARY-password"},
	}
	secrets := c.Typed.CoreV1().Secrets(fleet)
	_ = secrets.Delete(t.Context(), secret.Name, metav1.DeleteOptions{})
	_, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	c.deleteAll(t, "proxies."+v1alpha1.Group, "proxyprobes."+v1alpha1.Group, "leases.coordination.k8s.io", "events")
	return c
}

// prober does all that it does with the rights of its account, and no right is
// left over; in one part, and in two.
func TestProberHasExactlyItsRights(t *testing.T) {
	proberHasExactlyItsRights(t, renderAll(t)["release"], map[string]string{"prober": "prober-0-of-1"})
}

func TestShardedProberHasExactlyItsRights(t *testing.T) {
	proberHasExactlyItsRights(t, renderWith(t, "shards-2"), map[string]string{"prober-0-of-2": "prober-0-of-2", "prober-1-of-2": "prober-1-of-2"})
}

// proberHasExactlyItsRights runs Deployments, with the names of their Leases.
func proberHasExactlyItsRights(t *testing.T, all objects, leases map[string]string) {
	t.Helper()
	c := installed(t, all)
	rec := newRecorder(t, c)
	ca := probetest.NewCA(t)
	target := probetest.ServeTLS(t, ca.Certificate(t, "probe.example", time.Now().Add(time.Hour)), probetest.Status(http.StatusNoContent))
	proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(target.Addr), probetest.RequireBasic("crawler", "CANARY-password")))
	c.create(t, v1alpha1.ProxyProbeResource().Resource, probeOf(t, proxy.Addr))

	roots := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(roots, ca.PEM(), 0o600))
	flags := map[string]string{
		"ops-addr": "127.0.0.1:0", "system-namespace": system, "probe-ca": roots, "kubeconfig": rec.kubeconfig(t, c, "prober"),
	}
	var first []*daemon
	for deployment := range leases {
		first = append(first, startContainer(t, all.container(t, deployment, "prober"), flags))
	}
	testwait.Eventually(t, "a verdict", func() bool {
		probe, err := c.Dynamic.Resource(v1alpha1.ProxyProbeResource()).Namespace(fleet).Get(t.Context(), "login", metav1.GetOptions{})
		require.NoError(t, err)
		verdict, _, _ := unstructured.NestedString(probe.Object, "status", "verdict")
		return verdict == "Healthy"
	}, first)
	for _, d := range first {
		d.Address(t, "ops endpoint listening") // one of them has had nothing to do, and takes signals by then
		d.stop()
	}
	// The next one finds the Lease and renews it.
	for deployment, lease := range leases {
		second := startContainer(t, all.container(t, deployment, "prober"), flags)
		testwait.Eventually(t, "a renewed lease", func() bool {
			return rec.has(access{system, "coordination.k8s.io", "leases", lease, "update"})
		}, &second.Output)
		assertDocumented(t, second)
	}
	assertExact(t, all.grants(t, "prober"), rec)
}

func probeOf(t *testing.T, addr string) map[string]any {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	var number int64
	_, err := fmt.Sscan(port, &number)
	require.NoError(t, err)
	return map[string]any{
		"instanceID": "one", "host": host, "port": number, "credentialsRef": map[string]any{"name": "login"},
		"healthCheck": map[string]any{"probeURL": "https://probe.example/", "interval": "1s", "timeout": "1s"},
	}
}

// create makes an object of ours called "login" in the fleet.
func (c *cluster) create(t *testing.T, resource string, spec map[string]any) *unstructured.Unstructured {
	t.Helper()
	kind := map[string]string{"proxies": "Proxy", "proxyprobes": "ProxyProbe"}[resource]
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": "login", "namespace": fleet}, "spec": spec,
	}}
	created, err := c.Dynamic.Resource(v1alpha1.GroupVersion().WithResource(resource)).Namespace(fleet).Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// discovery leases a proxy that asks for a password.
func TestDiscoveryHasExactlyItsRights(t *testing.T) {
	all := renderAll(t)["release"]
	c := installed(t, all)
	rec := newRecorder(t, c)
	proxies := c.Dynamic.Resource(v1alpha1.ProxyResource()).Namespace(fleet)
	proxy := c.create(t, "proxies", map[string]any{
		"mode": "External", "endpoint": map[string]any{"host": "192.0.2.7", "port": int64(8080)}, "credentialsRef": map[string]any{"name": "login"},
	})
	proxy.Object["status"] = map[string]any{
		"phase": "Ready", "ip": "192.0.2.7", "port": int64(8080), "instanceID": "one", "observedGeneration": proxy.GetGeneration(),
	}
	_, err := proxies.UpdateStatus(t.Context(), proxy, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.renewProberLease(t)

	d := startContainer(t, all.container(t, "discovery", "discovery"), discoveryFlags(t, rec.kubeconfig(t, c, "discovery")), "DISCOVERY_TOKEN=CANARY-token-of-crawlers")
	api := "http://" + d.Address(t, "API listening")
	testwait.Eventually(t, "a lease", func() bool {
		code, body := post(t, api+"/v1/leases", "CANARY-token-of-crawlers", `{"ttlSeconds": 60}`)
		return code == http.StatusCreated && strings.Contains(body, "crawler:CANARY-password@192.0.2.7")
	}, &d.Output)
	assertExact(t, all.grants(t, "discovery"), rec)
	assertDocumented(t, d)
	assert.NotContains(t, d.String(), "CANARY")
}

func discoveryFlags(t *testing.T, kubeconfig string) map[string]string {
	t.Helper()
	return map[string]string{"lease-store": "file:" + filepath.Join(t.TempDir(), "leases"), "addr": "127.0.0.1:0", "ops-addr": "127.0.0.1:0", "system-namespace": system, "kubeconfig": kubeconfig}
}

// renewProberLease stands in for a prober that lives.
func (c *cluster) renewProberLease(t *testing.T) {
	t.Helper()
	manifest := fmt.Sprintf(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: prober-0-of-1, namespace: %s, labels: {%s: 0-of-1}}, spec: {renewTime: %q}}`,
		system, v1alpha1.LabelProberShard, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, errOut, err := c.run(manifest, "apply", "--server-side", "-f", "-")
	require.NoError(t, err, errOut)
}

func post(t *testing.T, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(answer)
}

// cloud takes the Lease, renews it, and looks for orphans.
func TestCloudHasExactlyItsRights(t *testing.T) {
	all := renderAll(t)["gcp"]
	c := installed(t, all)
	rec := newRecorder(t, c)
	gce := serveHandler(t, gcestandin.New(gcestandin.Options{}).Handler())
	providers := filepath.Join(t.TempDir(), "providers.yaml")
	require.NoError(t, os.WriteFile(providers, []byte(gcpProviders), 0o600))
	d := startContainer(t, all.container(t, "webhooks", "cloud"), map[string]string{
		"socket": filepath.Join(t.TempDir(), "s"), "ops-addr": "127.0.0.1:0", "providers-config": providers,
		"system-namespace": system, "kubeconfig": rec.kubeconfig(t, c, "webhooks"),
		"gcp-endpoint": gce, "list-interval": "1s", "gc-interval": "1s",
	})
	testwait.Eventually(t, "a renewed lease and a sweep", func() bool {
		return rec.has(access{system, "coordination.k8s.io", "leases", "cloud-egress-proxies", "update"}) &&
			rec.has(access{"", "crawl.example.com", "proxies", "", "list"})
	}, &d.Output)
	sendEvents(t, all, c, rec) // with the same account
	assertExact(t, all.grants(t, "webhooks"), rec)
	assertDocumented(t, d)
}

func serveHandler(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

const gcpProviders = `
providers:
- name: gce
  type: gcp
  gcp:
    project: demo
`
