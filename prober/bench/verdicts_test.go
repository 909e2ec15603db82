package bench

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

const (
	verdictTarget = "target.invalid"
	// verdictTimeout is the timeout of both programs. blackbox_exporter times out half a
	// second earlier, by its --timeout-offset.
	verdictTimeout = 2 * time.Second
)

// faulty is a fault that blackbox_exporter can be configured for.
type faulty struct {
	kind  string
	proxy func(*verdicts) probetest.Behaviour
	works bool // the expected verdict
}

func faults() []faulty {
	const opened = "HTTP/1.1 200 Connection established\r\n\r\n"
	plain := func(b probetest.Behaviour) func(*verdicts) probetest.Behaviour {
		return func(*verdicts) probetest.Behaviour { return b }
	}
	to := func(name string) func(*verdicts) probetest.Behaviour {
		return func(v *verdicts) probetest.Behaviour { return probetest.Forward(probetest.To(v.targets[name])) }
	}
	return []faulty{
		{"works", to("good"), true},
		{"accepts and closes", plain(probetest.CloseAtOnce), false},
		{"accepts and hangs", plain(probetest.Hang), false},
		{"resets in mid-CONNECT", plain(probetest.Reset), false},
		{"drips its answer to CONNECT", plain(probetest.Drip("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-Slow: very\r\n", 999), 20*time.Millisecond)), false},
		{"403 to CONNECT", plain(probetest.Answer(403)), false},
		{"407 to CONNECT", plain(probetest.Answer(407)), false},
		{"503 to CONNECT", plain(probetest.Answer(503)), false},
		{"half open", plain(probetest.SayAndHang(opened)), false},
		{"a page in the tunnel", plain(probetest.Say(opened + "<html>please pay</html>")), false},
		{"intercepts TLS", to("foreign"), false},
		{"connects elsewhere", to("elsewhere"), false},
		{"the certificate has expired", to("expired"), false},
		{"wrong status", to("404"), false},
		{"redirect", to("302"), false},
		{"hangs after the headers", to("hangs"), false},
		{"closes after the headers", to("breaks"), false},
	}
}

// verdicts has the targets and both programs.
type verdicts struct {
	targets  map[string]string
	prober   *probe.Prober
	exporter string // URL
}

// BenchmarkVerdictsBesideBlackbox compares the results of both programs for each fault,
// and their latency. It is about verdicts: run it once.
func BenchmarkVerdictsBesideBlackbox(b *testing.B) {
	path := blackboxPath(b)
	ca, dir := probetest.NewCA(b), b.TempDir()
	v := &verdicts{prober: probe.New(ca.Pool()), targets: targets(b, ca)}
	proxies := make([]*probetest.Proxy, len(faults()))
	var config strings.Builder
	config.WriteString("modules:\n")
	for i, f := range faults() {
		proxies[i] = probetest.StartProxy(b, f.proxy(v))
		fmt.Fprintf(&config, "  m%d: {prober: http, timeout: %s, http: {proxy_url: %q, skip_resolve_phase_with_proxy: true, follow_redirects: false, valid_status_codes: [200, 204], tls_config: {ca_file: %q}}}\n",
			i, verdictTimeout, "http://"+proxies[i].Addr, filepath.Join(dir, "ca.pem"))
	}
	require.NoError(b, os.WriteFile(filepath.Join(dir, "ca.pem"), ca.PEM(), 0o600))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "blackbox.yml"), []byte(config.String()), 0o600))
	addr := controlplanetest.FreeAddr(b)
	p := start(b, dir, "blackbox_exporter", path, os.Environ(), "--config.file", filepath.Join(dir, "blackbox.yml"), "--web.listen-address", addr, "--log.level", "error")
	v.exporter = "http://" + addr
	await(b, p, v.exporter+"/-/healthy")
	for b.Loop() {
		v.compare(b, proxies)
	}
}

func (v *verdicts) compare(b *testing.B, proxies []*probetest.Proxy) {
	var ours, theirs int
	fmt.Printf("\n%-30s %-8s %-20s %9s %10s %9s\n", "", "works", "prober", "", "blackbox", "")
	for i, f := range faults() {
		r := v.ask(b, proxies[i])
		began := time.Now()
		success := v.askExporter(b, i)
		took := time.Since(began)
		if (r.Outcome == probe.Success) != f.works {
			ours++
		}
		if success != f.works {
			theirs++
		}
		fmt.Printf("%-30s %-8v %-20s %9s %10v %9s\n", f.kind, f.works, r.Reason, r.Latency.Round(time.Millisecond), success, took.Round(time.Millisecond))
	}
	b.ReportMetric(float64(ours), "wrong")
	b.ReportMetric(float64(theirs), "blackbox-wrong")
	require.Zero(b, ours, "wrong verdicts")
}

func (v *verdicts) ask(b *testing.B, p *probetest.Proxy) probe.Result {
	hc := (&v1alpha1.HealthCheck{ProbeURL: "https://" + verdictTarget + "/", Timeout: metav1.Duration{Duration: verdictTimeout}}).OrDefault()
	return v.prober.Probe(b.Context(), probe.Request{Host: p.Host(), Port: p.Port(), HealthCheck: hc})
}

func (v *verdicts) askExporter(b *testing.B, module int) bool {
	resp, err := http.Get(fmt.Sprintf("%s/probe?module=m%d&target=%s", v.exporter, module, url.QueryEscape("https://"+verdictTarget+"/")))
	require.NoError(b, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b, err)
	require.Contains(b, string(body), "\nprobe_success ")
	return strings.Contains(string(body), "\nprobe_success 1")
}

// targets are addresses by name.
func targets(b *testing.B, ca *probetest.CA) map[string]string {
	valid := time.Now().Add(time.Hour)
	cert := ca.Certificate(b, verdictTarget, valid)
	serve := func(c tls.Certificate, text string) string {
		return probetest.ServeTLS(b, c, probetest.Text(text)).Addr
	}
	const fine, body = "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
	return map[string]string{
		"good":      serve(cert, fine),
		"foreign":   serve(probetest.NewCA(b).Certificate(b, verdictTarget, valid), fine),
		"elsewhere": serve(ca.Certificate(b, "elsewhere.invalid", valid), fine),
		"expired":   serve(ca.Certificate(b, verdictTarget, time.Now().Add(-time.Minute)), fine),
		"404":       serve(cert, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
		"302":       serve(cert, "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
		"breaks":    serve(cert, body),
		"hangs":     probetest.ServeTLS(b, cert, probetest.TextAndHang(body)).Addr,
	}
}
