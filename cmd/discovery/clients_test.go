package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
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
	}, 20*time.Second, 20*time.Millisecond)
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
	assert.Eventually(w, func() bool { return w.tunnels.Load() == 0 }, 10*time.Second, 10*time.Millisecond, "tunnels that are still open")
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

// env is what the crawlers of other languages are told.
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

// trusting is what connections to the site need.
func trusting(t *testing.T, ca []byte) *http.Transport {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
}

// TestTheGoClient crawls with the real client through real proxies.
func TestTheGoClient(t *testing.T) {
	w := newWorld(t)
	ca, err := os.ReadFile(w.caFile)
	require.NoError(t, err)
	c, err := client.New(client.Config{URL: w.discovery.api, Token: token, Transport: trusting(t, ca)})
	require.NoError(t, err)
	var first string
	require.NoError(t, c.Use(t.Context(), client.Want{Target: siteHost, Selector: map[string]string{"geo": "eu"}}, func(ctx context.Context, l *client.Lease) error {
		first = l.Proxy.Name
		resp, err := l.HTTPClient().Get("https://" + siteHost + "/picky")
		require.NoError(t, err)
		defer resp.Body.Close()
		result, known := client.Judge(resp, err)
		assert.True(t, known)
		assert.Equal(t, client.RateLimited, result)
		assert.Equal(t, 1, w.active())
		return l.Report(ctx, result, "")
	}))
	w.givenBack()
	require.NoError(t, c.Use(t.Context(), client.Want{Target: siteHost}, func(_ context.Context, l *client.Lease) error {
		assert.NotEqual(t, first, l.Proxy.Name)
		resp, err := l.HTTPClient().Get("https://" + siteHost + "/picky")
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		return nil
	}))
	w.givenBack()
}

// TestThePythonClient runs the tests of the Python client.
func TestThePythonClient(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not in PATH")
	}
	w := newWorld(t)
	out, err := w.run("../../client/python", python, "-m", "unittest", "-v", "test_proxylease")
	require.NoError(t, err, out)
	assert.Contains(t, out, "test_a_lease_is_a_scope")
	assert.NotContains(t, out, "skipped", "all ran")
	w.givenBack()
}

// TestScrapy crawls with a real Scrapy, where there is one.
func TestScrapy(t *testing.T) {
	python := ""
	for _, name := range []string{"python3", "/usr/bin/python3"} { // Debian installs it for its own
		if exec.CommandContext(t.Context(), name, "-c", "import scrapy").Run() == nil {
			python = name
			break
		}
	}
	if python == "" {
		t.Skip("no python3 has Scrapy: apt-get install python3-scrapy")
	}
	w := newWorld(t)
	out, err := w.run("../../client/python", python, "-m", "unittest", "-v", "test_proxylease_scrapy")
	require.NoError(t, err, out)
	assert.NotContains(t, out, "skipped", "it ran")
	w.givenBack()
}

// TestCrawlee crawls with a real Crawlee: the site turns the first proxy away,
// and all pages come by the second.
func TestCrawlee(t *testing.T) {
	dir := installCrawlee(t)
	w := newWorld(t)
	out, err := w.run(dir, "node", "crawl.mjs", "https://"+siteHost+"/picky/1", "https://"+siteHost+"/picky/2", "https://"+siteHost+"/picky/3")
	require.NoError(t, err, out)
	pages := map[string]string{}
	sessions := map[string]bool{}
	for line := range strings.Lines(out) {
		var page struct{ URL, Text, Session, Error string }
		if !strings.HasPrefix(line, `{"url"`) || json.Unmarshal([]byte(line), &page) != nil {
			continue // of Crawlee's own log
		}
		assert.Empty(t, page.Error)
		pages[page.URL], sessions[page.Session] = page.Text, true
	}
	assert.Len(t, pages, 3, out)
	for url, text := range pages {
		assert.Equal(t, "reached", text, url)
	}
	assert.Len(t, sessions, 1, "all by the second proxy")
	w.givenBack()
	_, body, _ := w.discovery.ask(http.MethodPost, "/v1/leases", `{"target":"`+siteHost+`","exclude":["`+w.other()+`"]}`)
	assert.EqualValues(t, 1, body["inCooldown"], "the first one was reported: %v", body)
}

// crawleeExample is what its users start from.
const crawleeExample = "../../examples/crawlers/crawlee"

// requireNode set to "1" makes it an error that the example cannot be run.
const requireNode = "PX_REQUIRE_NODE"

// installCrawlee returns a folder with the example and the packages that its
// lock file names, which are kept in the user's cache folder.
func installCrawlee(t *testing.T) string {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv(requireNode) == "1" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			missing("%s is not in PATH: apt-get install nodejs npm", program)
		}
	}
	lock, err := os.ReadFile(crawleeExample + "/package-lock.json")
	require.NoError(t, err)
	sum := sha256.Sum256(lock)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	packages := filepath.Join(cache, "egress-proxies", "crawlee-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(packages); err != nil {
		if out, err := npmInstall(t, packages); err != nil {
			missing("npm cannot install the example's packages: %v: %s", err, out)
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(crawleeExample)))
	require.NoError(t, os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")))
	return dir
}

// npmInstall makes the folder, whole or not at all.
func npmInstall(t *testing.T, folder string) (string, error) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(folder), 0o755))
	under, err := os.MkdirTemp(filepath.Dir(folder), "npm-")
	require.NoError(t, err)
	defer os.RemoveAll(under)
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(crawleeExample, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(under, name), text, 0o644))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = under
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), err
	}
	if err := os.Rename(under, folder); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return "", err
	}
	return "", nil
}
