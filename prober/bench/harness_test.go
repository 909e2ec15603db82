// Package bench measures the prober as a process: the CPU time of a probe compared with
// blackbox_exporter and with a bare loop, the delay of probes, and the memory of ten
// thousand proxies.
//
// The rig (proxies, targets and a stand-in for the API server) and the compared programs
// run in other processes. The rig counts, and checks that each probe makes its own
// connections and TLS handshake.
package bench

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// roleEnv selects the process that the test binary runs as.
const roleEnv = "PX_BENCH_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleEnv); role {
	case "":
		goleak.VerifyTestMain(m) // exits
	case "rig":
		err = runRig(os.Getenv(dirEnv))
	case "floor":
		err = runFloor(os.Getenv(dirEnv))
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// patience is the timeout of waits for processes to start.
const patience = time.Minute

// oneCore is the environment of a measured process.
func oneCore(extra ...string) []string {
	return append(append(os.Environ(), "GOMAXPROCS=1"), extra...)
}

// start runs a program until the benchmark ends.
func start(b *testing.B, dir, name, path string, env []string, args ...string) *process.Process {
	b.Helper()
	p, err := process.Start(process.Command{
		Name: name, Path: path, Args: args, Env: env, LogFile: filepath.Join(dir, name+".log"),
	})
	require.NoError(b, err)
	b.Cleanup(func() {
		_ = p.Signal(syscall.SIGCONT)
		require.NoError(b, p.Stop(10*time.Second))
	})
	return p
}

// startRole runs this test binary in a role.
func startRole(b *testing.B, dir, role string, env ...string) *process.Process {
	b.Helper()
	self, err := os.Executable()
	require.NoError(b, err)
	return start(b, dir, role, self, append(append(os.Environ(), env...), roleEnv+"="+role, dirEnv+"="+dir))
}

// cpu returns the user and system CPU time of a process so far, on all its threads.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	// proc(5): fields 14 and 15, in ticks of 10 ms; the name in field 2 may contain
	// blanks.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	require.NoError(b, err)
	system, err := strconv.ParseInt(fields[12], 10, 64)
	require.NoError(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory returns the current and the peak resident set of a process in MB (10^6 bytes).
func memory(b *testing.B, pid int) (now, peak float64) {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	kB := func(key string) float64 {
		_, rest, ok := strings.Cut(string(status), key+":")
		require.True(b, ok, key)
		n, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		require.NoError(b, err)
		return n * 1024 / 1e6
	}
	return kB("VmRSS"), kB("VmHWM")
}

// await waits until a URL returns 200.
func await(b *testing.B, p *process.Process, url string) {
	b.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		require.True(b, time.Now().Before(until), "%s does not respond: %v\n%s", url, err, p.LogTail())
	}
}

// getJSON decodes the body of a URL.
func getJSON(b *testing.B, url string, into any) {
	b.Helper()
	resp, err := http.Get(url)
	require.NoError(b, err)
	defer resp.Body.Close()
	require.NoError(b, json.NewDecoder(resp.Body).Decode(into))
}

// scene is a rig with its folder.
type scene struct {
	settings
	addresses
	dir string
}

func newScene(b *testing.B, s settings) *scene {
	b.Helper()
	sc := &scene{settings: s, dir: b.TempDir()}
	ca := probetest.NewCA(b)
	cert := ca.Certificate(b, targetName, time.Now().Add(time.Hour))
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	require.NoError(b, err)
	sc.write(b, "ca.pem", ca.PEM())
	sc.write(b, "target.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	sc.write(b, "target.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	require.NoError(b, writeJSON(sc.path("settings.json"), s))
	p := startRole(b, sc.dir, "rig")
	for until := time.Now().Add(patience); readJSON(sc.path("addresses.json"), &sc.addresses) != nil; time.Sleep(10 * time.Millisecond) {
		require.True(b, time.Now().Before(until), p.LogTail())
	}
	return sc
}

func (sc *scene) path(name string) string { return filepath.Join(sc.dir, name) }

func (sc *scene) write(b *testing.B, name string, content []byte) {
	b.Helper()
	require.NoError(b, os.WriteFile(sc.path(name), content, 0o600))
}

func (sc *scene) counts(b *testing.B) (c counts) {
	b.Helper()
	getJSON(b, "http://"+sc.API+"/counts", &c)
	return c
}

// fresh fails unless every request had its own CONNECT and full TLS handshake.
func (sc *scene) fresh(b *testing.B) {
	b.Helper()
	c := sc.counts(b)
	require.Zero(b, c.Resumed, "TLS sessions were resumed")
	require.Zero(b, c.Reused, "connections were used twice")
	require.LessOrEqual(b, c.Requests, c.Handshakes)
	require.LessOrEqual(b, c.Handshakes, c.Connects)
}

// prober starts the real program, on one core, against the rig, and returns it
// with the URL of its ops endpoint.
func (sc *scene) prober(b *testing.B) (*process.Process, string) {
	b.Helper()
	bin := b.TempDir()
	require.NoError(b, programtest.Build(bin, "../../cmd/prober"))
	sc.write(b, "kubeconfig", fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
 clusters: [{name: c, cluster: {server: "http://%s"}}], users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, sc.API))
	ops := controlplanetest.FreeAddr(b)
	p := start(b, sc.dir, "prober", filepath.Join(bin, "prober"), oneCore(),
		"--kubeconfig", sc.path("kubeconfig"), "--probe-ca", sc.path("ca.pem"), "--workers", fmt.Sprint(sc.Workers), "--ops-addr", ops)
	await(b, p, "http://"+ops+"/readyz")
	return p, "http://" + ops
}

// blackbox starts blackbox_exporter on one core, with a module per proxy, and returns it
// with its URL. It skips the test when the program has not been built.
func (sc *scene) blackbox(b *testing.B) (*process.Process, string) {
	b.Helper()
	path := blackboxPath(b)
	var config strings.Builder
	config.WriteString("modules:\n")
	for i := range sc.Proxies {
		fmt.Fprintf(&config, "  m%d: {prober: http, timeout: 5s, http: {proxy_url: %q, skip_resolve_phase_with_proxy: true, preferred_ip_protocol: ip4, tls_config: {ca_file: %q}}}\n",
			i, proxyURL(i, sc.ProxyPort), sc.path("ca.pem"))
	}
	sc.write(b, "blackbox.yml", []byte(config.String()))
	addr := controlplanetest.FreeAddr(b)
	p := start(b, sc.dir, "blackbox_exporter", path, oneCore(),
		"--config.file", sc.path("blackbox.yml"), "--web.listen-address", addr, "--log.level", "error")
	await(b, p, "http://"+addr+"/-/healthy")
	return p, "http://" + addr
}

// blackboxPath is where `make bench` builds blackbox_exporter.
func blackboxPath(b *testing.B) string {
	b.Helper()
	path, err := filepath.Abs("../../bin/blackbox_exporter")
	require.NoError(b, err)
	if _, err := os.Stat(path); err != nil {
		b.Skip("blackbox_exporter is not built: run `make bench`")
	}
	return path
}
