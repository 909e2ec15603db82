package prober

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// The verdict matrix: a proxy that worked fails in one way, in front of a target that
// direct checks reach. Each row has the expected verdict and reason. The time to detect
// is threshold-1 intervals and one probe, which takes less than its timeout, or exactly
// the timeout if something stalls.
//
//	want           verdict and reason after failureThreshold probes with the fault
//	stalls         every probe costs exactly the timeout
func matrix() []faultRow {
	const opened = "HTTP/1.1 200 Connection established\r\n\r\n"
	say, hang := probetest.Say, probetest.SayAndHang
	status := probetest.Answer
	text := func(s string) handler { return probetest.Text(s) }
	return []faultRow{
		// Connection to the proxy.
		{kind: "nothing listens, and the target lives", gone: true, want: unhealthy, reason: probe.ReasonDialFailed},
		{kind: "listens on IPv6 alone, and its address says so", ipv6: true, want: healthy, reason: probe.ReasonProbeSucceeded},
		// TLS with the proxy.
		{kind: "speaks no TLS although it should", scheme: "https", proxy: say("HTTP/1.1 400 Bad Request\r\n\r\n"), want: unhealthy, reason: probe.ReasonProxyTLSFailed},
		{kind: "accepts and hangs before its TLS", scheme: "https", proxy: probetest.Hang, want: unhealthy, reason: probe.ReasonProxyTLSTimeout, stalls: true},
		// CONNECT.
		{kind: "accepts and closes", proxy: probetest.CloseAtOnce, want: unhealthy, reason: probe.ReasonConnectFailed},
		{kind: "accepts and hangs", proxy: probetest.Hang, want: unhealthy, reason: probe.ReasonConnectTimeout, stalls: true},
		{kind: "resets in mid-CONNECT", proxy: probetest.Reset, want: unhealthy, reason: probe.ReasonConnectFailed},
		{kind: "drips its answer to CONNECT", proxy: probetest.Drip("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-Slow: very\r\n", 99), 5*time.Millisecond), want: unhealthy, reason: probe.ReasonConnectTimeout, stalls: true},
		{kind: "401 to CONNECT", proxy: status(401), want: unhealthy, reason: probe.ReasonProxyAuthRefused},
		{kind: "407 to CONNECT, though GET works", onConnect: 407, want: unhealthy, reason: probe.ReasonProxyAuthRefused},
		{kind: "403 to CONNECT, though GET works", onConnect: 403, want: unhealthy, reason: probe.ReasonConnectRefused},
		{kind: "429 to CONNECT", proxy: status(429), want: unhealthy, reason: probe.ReasonConnectRefused},
		{kind: "500 to CONNECT, as squid 5 for a dead name", proxy: status(500), want: unhealthy, reason: probe.ReasonUpstreamFailed},
		{kind: "502 to CONNECT", proxy: status(502), want: unhealthy, reason: probe.ReasonUpstreamFailed},
		{kind: "503 to CONNECT", proxy: status(503), want: unhealthy, reason: probe.ReasonUpstreamFailed},
		{kind: "503 to CONNECT, and the target is down", proxy: status(503), down: true, want: healthy, reason: probe.ReasonProbeTargetDown},
		{kind: "is a web server", proxy: status(405), want: unhealthy, reason: probe.ReasonConnectFailed},
		{kind: "is something else", proxy: say("SSH-2.0-OpenSSH_9.2\r\n"), want: unhealthy, reason: probe.ReasonConnectFailed},
		// TLS with the target.
		{kind: "half open: the tunnel, then nothing", proxy: hang(opened), want: unhealthy, reason: probe.ReasonTLSTimeout, stalls: true},
		{kind: "half open, and the target is down", proxy: hang(opened), down: true, want: healthy, reason: probe.ReasonProbeTargetDown, stalls: true},
		{kind: "opens the tunnel and closes it", proxy: say(opened), want: unhealthy, reason: probe.ReasonTLSHandshakeFailed},
		{kind: "sends a page into the tunnel", proxy: say(opened + "<html>please pay</html>"), want: unhealthy, reason: probe.ReasonTLSHandshakeFailed},
		{kind: "intercepts TLS with another authority", cert: certFault{foreign: true}, want: unhealthy, reason: probe.ReasonTLSUntrusted},
		{kind: "connects elsewhere", cert: certFault{name: "elsewhere.invalid"}, want: unhealthy, reason: probe.ReasonTLSNameMismatch},
		{kind: "the certificate has expired", cert: certFault{expired: true}, want: unhealthy, reason: probe.ReasonTLSExpired},
		// The target's response.
		{kind: "wrong status", target: probetest.Status(404), want: unhealthy, reason: probe.ReasonUnexpectedStatus},
		{kind: "redirect", target: text("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n"), want: unhealthy, reason: probe.ReasonUnexpectedStatus},
		{kind: "the target refuses this one with 403", target: probetest.Status(403), want: healthy, reason: probe.ReasonTargetRefused},
		{kind: "the target refuses this one with 429", target: probetest.Status(429), want: healthy, reason: probe.ReasonTargetRefused},
		{kind: "closes in mid-headers", target: text("HTTP/1.1 200 OK\r\nServer:"), want: unhealthy, reason: probe.ReasonResponseFailed},
		{kind: "hangs instead of an answer", target: probetest.TextAndHang(""), want: unhealthy, reason: probe.ReasonResponseTimeout, stalls: true},
		{kind: "closes after the headers", target: text("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), want: unhealthy, reason: probe.ReasonResponseIncomplete},
		{kind: "hangs after the headers", target: probetest.TextAndHang("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), want: unhealthy, reason: probe.ReasonResponseTimeout, stalls: true},
		// Faults that only an echo endpoint detects.
		{kind: "answers with a page of its own, 200", proof: true, proxy: say("HTTP/1.1 200 OK\r\n\r\nplease pay"), want: unhealthy, reason: probe.ReasonWrongContent},
		{kind: "passes on to another site", proof: true, target: text("HTTP/1.1 200 OK\r\n\r\n{\"origin\":\"192.0.2.1\"}"), want: unhealthy, reason: probe.ReasonWrongContent},
		{kind: "tells who its client is", proof: true, leak: true, target: probetest.Echo, want: unhealthy, reason: probe.ReasonHeaderLeak},
	}
}

type handler = func(net.Conn, *http.Request)

type faultRow struct {
	kind      string
	scheme    v1alpha1.Scheme
	proxy     probetest.Behaviour
	onConnect int // status of responses to CONNECT only
	gone      bool
	ipv6      bool
	cert      certFault
	target    handler
	proof     bool // http URL of an echo endpoint
	leak      bool
	down      bool // direct checks fail too
	want      v1alpha1.Verdict
	reason    probe.Reason
	stalls    bool
}

// certFault is a fault of the target's certificate.
type certFault struct {
	foreign, expired bool
	name             string
}

func (c certFault) certificate(t *testing.T, ca *probetest.CA) tls.Certificate {
	until, name := time.Now().Add(time.Hour), targetName
	if c.expired {
		until = time.Now().Add(-time.Minute)
	}
	if c.name != "" {
		name = c.name
	}
	if c.foreign {
		ca = probetest.NewCA(t)
	}
	return ca.Certificate(t, name, until)
}

// behaviour is that of the faulty proxy, and of the target behind it.
func (f *faultRow) behaviour(t *testing.T, ca *probetest.CA) probetest.Behaviour {
	if f.proxy != nil {
		return f.proxy
	}
	answer := f.target
	if answer == nil {
		answer = probetest.Status(204)
	}
	var target *probetest.Server
	if f.proof {
		target = probetest.ServeHTTP(t, answer)
	} else {
		target = probetest.ServeTLS(t, f.cert.certificate(t, ca), answer)
	}
	return probetest.Forward(probetest.To(target.Addr), func(r *http.Request) int {
		if f.leak {
			r.Header.Set("X-Forwarded-For", "10.1.2.3")
		}
		if r.Method == http.MethodConnect {
			return f.onConnect
		}
		return 0
	})
}

func (f *faultRow) start(t *testing.T, ca *probetest.CA) *probetest.Proxy {
	if !f.ipv6 {
		p := probetest.StartProxy(t, f.behaviour(t, ca))
		if f.gone {
			p.Close()
		}
		return p
	}
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	return &probetest.Proxy{Server: probetest.ServeOn(t, ln, f.behaviour(t, ca))}
}

// timeout is long for rows that must not reach it. It is short for rows that wait for
// it, yet long enough for a busy machine to reach the stage that stalls.
func (f *faultRow) timeout() time.Duration {
	if f.stalls {
		return 2 * time.Second
	}
	return patience
}

func (f *faultRow) spec(p *probetest.Proxy) *v1alpha1.ProxyProbe {
	out := judged("a", healthy)
	out.Spec.Host, out.Spec.Port, out.Spec.Scheme = p.Host(), p.Port(), f.scheme
	hc := out.Spec.HealthCheck
	hc.ProbeURL, hc.Timeout = "https://"+targetName+"/", metav1.Duration{Duration: f.timeout()}
	if f.proof {
		hc.ProbeURL, hc.ExitProof = "http://"+targetName+"/", &v1alpha1.ExitProof{OnHeaderLeak: v1alpha1.FailOnHeaderLeak}
	}
	return out
}

func TestVerdictMatrix(t *testing.T) {
	ca := probetest.NewCA(t)
	rows := matrix()
	assert.GreaterOrEqual(t, len(rows), 20)
	for _, f := range rows {
		t.Run(f.kind, func(t *testing.T) {
			t.Parallel()
			f.check(t, ca)
		})
	}
}

func (f *faultRow) check(t *testing.T, ca *probetest.CA) {
	c := guarded(t, usual())
	c.up = !f.down
	c.workedBefore(target443)
	p := f.spec(f.start(t, ca))
	checker := &checker{probe: probe.New(ca.Pool()).Probe}
	require.NoError(t, c.runner.Add(p))
	c.step(30 * time.Second)
	hc := p.Spec.HealthCheck
	begun := c.clock.Now()
	for n := int32(1); n <= hc.FailureThreshold; n++ {
		j := c.one()
		r := checker.check(context.Background(), j)
		f.checkTime(t, r)
		c.runner.finish(j, r)
		c.checks()
		if n < hc.FailureThreshold {
			assert.Equal(t, healthy, c.verdict(p), "not before the threshold")
			c.step(hc.Interval.Duration)
		}
	}
	assert.Equal(t, time.Duration(hc.FailureThreshold-1)*hc.Interval.Duration, c.clock.Now().Sub(begun), "time to detect, without the last probe")
	assert.Equal(t, f.want, c.verdict(p))
	found, _ := c.runner.explain(keyOf(p))
	if f.want == unhealthy {
		assert.Equal(t, string(f.reason), c.write(p).status.Reason)
	} else {
		assert.Equal(t, f.reason, found.Probes[0].Reason, found.Probes[0].Message)
	}
}

func (f *faultRow) checkTime(t *testing.T, r probe.Result) {
	if f.stalls {
		assert.GreaterOrEqual(t, r.Latency, f.timeout()-time.Millisecond, r.Message)
		assert.Less(t, r.Latency, f.timeout()+5*time.Second, "the one deadline, and what a busy machine adds")
		return
	}
	assert.Less(t, r.Latency, f.timeout(), "known before the timeout")
}
