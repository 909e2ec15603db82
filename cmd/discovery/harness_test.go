package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// siteHost is a name that only the proxies can reach, so that nothing that goes
// past them arrives.
const siteHost = "site.example"

// world is what a crawler sees: discovery, a site, and two proxies to it, with
// room for one lease each.
type world struct {
	*testing.T
	discovery *running
	site      *site
	caFile    string
	namespace string
	tunnels   atomic.Int32 // through either proxy
}

// site answers through which proxy it was reached, and turns one of them away.
type site struct {
	mu     sync.Mutex
	picked string // the proxy whose requests for /picky it refuses: the first
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := realCluster(t)
	c.secret("login", map[string]string{v1alpha1.LabelCredentials: "true"})
	c.renew(time.Now())
	ca := probetest.NewCA(t)
	w := &world{T: t, namespace: c.namespace, site: &site{}, caFile: filepath.Join(t.TempDir(), "ca.pem")}
	require.NoError(t, os.WriteFile(w.caFile, ca.PEM(), 0o600))
	cert := ca.Certificate(t, siteHost, time.Now().Add(time.Hour))
	for i := range 2 {
		name := fmt.Sprintf("p%d", i)
		// Each proxy leads to a door of its own, by which the site knows it.
		door := probetest.ServeTLS(t, cert, func(conn net.Conn, req *http.Request) { w.site.answer(conn, req, name) })
		forward := probetest.Forward(probetest.To(net.JoinHostPort(door.Host(), fmt.Sprint(door.Port()))), probetest.RequireBasic("crawler", canaryPassword))
		p := probetest.StartProxy(t, func(conn net.Conn) {
			w.tunnels.Add(1)
			defer w.tunnels.Add(-1)
			forward(conn)
		})
		c.externalProxy(name, p.Host(), p.Port())
	}
	w.discovery = start(t, "--kubeconfig", c.kubeconfig, "--namespace", c.namespace, "--system-namespace", c.namespace)
	require.Eventually(t, func() bool {
		_, body, _ := w.discovery.ask(http.MethodGet, "/v1/proxies?leasable=true", "")
		return body["count"] == 2.0
	}, patience, 20*time.Millisecond)
	return w
}

// answer is the site's.
func (s *site) answer(conn net.Conn, req *http.Request, proxy string) {
	say := func(status int, text string) {
		fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(text), text)
	}
	s.mu.Lock()
	if s.picked == "" && strings.HasPrefix(req.URL.Path, "/picky") {
		s.picked = proxy
	}
	refused := s.picked == proxy && strings.HasPrefix(req.URL.Path, "/picky")
	s.mu.Unlock()
	switch {
	case refused:
		say(http.StatusTooManyRequests, "slow down")
	case req.URL.Path == "/hang":
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nrea")
		probetest.Hang(conn)
	default:
		say(http.StatusOK, "reached")
	}
}

// externalProxy makes an External Proxy with room for one lease that the hook
// has found Ready.
func (c *cluster) externalProxy(name, host string, port int32) {
	c.Helper()
	res := c.objects.Resource(v1alpha1.ProxyResource()).Namespace(c.namespace)
	created, err := res.Create(c.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
		"metadata": map[string]any{"namespace": c.namespace, "name": name},
		"spec": map[string]any{
			"mode": "External", "endpoint": map[string]any{"host": host, "port": int64(port)}, "maxLeases": int64(1),
			"attributes": map[string]any{"geo": "eu"}, "credentialsRef": map[string]any{"name": "login"},
		},
	}}, metav1.CreateOptions{})
	require.NoError(c, err)
	created.Object["status"] = map[string]any{
		"phase": "Ready", "ip": host, "port": int64(port), "instanceID": "external-" + name, "observedGeneration": created.GetGeneration(),
	}
	_, err = res.UpdateStatus(c.Context(), created, metav1.UpdateOptions{})
	require.NoError(c, err)
}

// givenBack wants all leases to be over, and all tunnels.
func (w *world) givenBack() {
	w.Helper()
	assert.Zero(w, w.active(), "leases that are still out")
	assert.Eventually(w, func() bool { return w.tunnels.Load() == 0 }, patience, 10*time.Millisecond, "tunnels that are still open")
}

// active is how many leases are out.
func (w *world) active() int {
	w.Helper()
	_, body, _ := w.discovery.ask(http.MethodGet, "/v1/proxies", "")
	n := 0
	for _, p := range body["proxies"].([]any) {
		n += int(p.(map[string]any)["activeLeases"].(float64))
	}
	return n
}

// other is the proxy that the site did not turn away, as "namespace/name".
func (w *world) other() string {
	w.site.mu.Lock()
	defer w.site.mu.Unlock()
	name := map[string]string{"p0": "p1", "p1": "p0"}[w.site.picked]
	return w.namespace + "/" + name
}

// env is the environment of crawlers in other languages.
func (w *world) env() []string {
	return append(os.Environ(),
		"DISCOVERY_URL="+w.discovery.api, "DISCOVERY_TOKEN="+token, "TARGET=https://"+siteHost, "TARGET_CA="+w.caFile,
		"NODE_EXTRA_CA_CERTS="+w.caFile, "SSL_CERT_FILE="+w.caFile, "PYTHONDONTWRITEBYTECODE=1", "no_proxy=*", "NO_PROXY=*",
	)
}

// run runs a command of another language and returns what it printed.
func (w *world) run(dir string, command ...string) (string, error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, w.env()
	out, err := cmd.CombinedOutput()
	assert.NotContains(w, string(out), "CANARY", "no secret is printed")
	return string(out), err
}
