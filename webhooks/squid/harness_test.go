package squid

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// update rewrites the golden files: go test ./webhooks/squid -update
var update = flag.Bool("update", false, "rewrite the golden files under testdata")

// golden compares got with the file testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./webhooks/squid -update and review the new file")
	require.Equal(t, string(want), string(got), "%s differs; if that is intended, run go test ./webhooks/squid -update", path)
}

func testProxy() *v1alpha1.Proxy {
	return &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Name: "fra-1", Namespace: "crawl", UID: "11111111-2222-3333-4444-555555555555"},
		Spec:       v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "pods", Port: 3128},
	}
}

func testTemplate() *Template {
	return &Template{
		Provider:        "pods",
		Image:           "registry.example.com/squid:5.7",
		ImagePullPolicy: corev1.PullIfNotPresent,
		CPU:             resource.MustParse("100m"),
		Memory:          resource.MustParse("128Mi"),
		AllowClients:    parsePrefixes("10.0.0.0/8"),
		AllowPorts:      []int{80, 443},
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

// findSquid returns the path of squid. Without one the test is skipped, unless
// PX_REQUIRE_SQUID=1 requires it.
func findSquid(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"squid", "/usr/sbin/squid"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("PX_REQUIRE_SQUID") == "1" {
		t.Fatal("no squid found, and PX_REQUIRE_SQUID=1; install Debian's package squid")
	}
	t.Skip("no squid found; install Debian's package squid to run this test")
	return ""
}

// squidDir is a folder that squid's user may write to, below folders that it
// may enter, which t.TempDir does not promise.
func squidDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "squid-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, int(squidUser), int(squidUser)))
	}
	return dir
}

// adapted is the configuration for a process outside a container: its own
// address and folder, logs in files.
func adapted(conf, addr, dir string) string {
	lines := strings.Split(conf, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "http_port ") {
			lines[i] = "http_port " + addr
		}
	}
	return strings.NewReplacer("/run/squid", dir, "stdio:/dev/stdout", "stdio:"+dir+"/access.log", "/dev/stderr", dir+"/cache.log").
		Replace(strings.Join(lines, "\n"))
}

// startSquidWith runs a real squid with those rules, as an ordinary user, and
// returns its address.
func startSquidWith(t *testing.T, r *Template) string {
	t.Helper()
	squid, dir, addr := findSquid(t), squidDir(t), controlplanetest.FreeAddr(t)
	conf := filepath.Join(dir, "squid.conf")
	require.NoError(t, os.WriteFile(conf, []byte(adapted(config(1, accessRules(r)), addr, dir)), 0o644))
	cmd := exec.Command(squid, "-N", "-f", conf)
	cmd.Dir = dir
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(squidUser), Gid: uint32(squidUser)}}
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "cache.log"))
			t.Logf("squid says:\n%s", log)
		}
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, 20*time.Second, 20*time.Millisecond, "squid does not listen")
	return addr
}

// ask sends one raw request to the proxy, from that local address when it is
// not empty, and returns the status code of the answer.
func ask(t *testing.T, proxy, from, requestLine, host string) int {
	t.Helper()
	d := net.Dialer{Timeout: 5 * time.Second}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.Dial("tcp", proxy)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(15*time.Second)))
	_, err = fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", requestLine, host)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

func connectTo(t *testing.T, proxy, from, target string) int {
	t.Helper()
	return ask(t, proxy, from, "CONNECT "+target, target)
}
