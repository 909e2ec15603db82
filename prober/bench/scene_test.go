package bench

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

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

// fresh fails unless every request came through a CONNECT and a full TLS handshake
// of its own.
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

// blackbox starts blackbox_exporter, on one core, with a module per proxy, and
// returns it with its URL. It skips where the program has not been built.
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

// blackboxPath is where `make bench` builds the peer.
func blackboxPath(b *testing.B) string {
	b.Helper()
	path, err := filepath.Abs("../../bin/blackbox_exporter")
	require.NoError(b, err)
	if _, err := os.Stat(path); err != nil {
		b.Skip("blackbox_exporter is not built: run `make bench`")
	}
	return path
}
