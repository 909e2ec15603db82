package probe

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

const (
	opened  = "HTTP/1.1 200 Connection established\r\n\r\n"
	dripGap = 20 * time.Millisecond
)

// fault is one fault of a proxy or its target.
type fault struct {
	name   string
	proxy  probetest.Behaviour
	stage  Stage
	reason Reason
	stalls bool // must cost exactly the timeout
}

// proxyFaults fail before the target is reached.
func proxyFaults() []fault {
	return []fault{
		{"closes at once", probetest.CloseAtOnce, StageConnect, ReasonConnectFailed, false},
		{"resets in mid-CONNECT", probetest.Reset, StageConnect, ReasonConnectFailed, false},
		{"closes in mid-answer", probetest.Say("HTTP/1.1 200 Conn"), StageConnect, ReasonConnectFailed, false},
		{"accepts and hangs", probetest.Hang, StageConnect, ReasonConnectTimeout, true},
		{"hangs in mid-status line", probetest.SayAndHang("HTTP/1.1 2"), StageConnect, ReasonConnectTimeout, true},
		{"hangs in the headers of its answer", probetest.SayAndHang("HTTP/1.1 200 OK\r\nVia: x\r\n"), StageConnect, ReasonConnectTimeout, true},
		{"drips its answer", probetest.Drip("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-Slow: very\r\n", 1000), dripGap), StageConnect, ReasonConnectTimeout, true},
		{"400 to CONNECT", probetest.Answer(400), StageConnect, ReasonConnectFailed, false},
		{"401 to CONNECT", probetest.Answer(401), StageConnect, ReasonProxyAuthRefused, false},
		{"403 to CONNECT", probetest.Answer(403), StageConnect, ReasonConnectRefused, false},
		{"405 to CONNECT: a web server", probetest.Answer(405), StageConnect, ReasonConnectFailed, false},
		{"407 to CONNECT", probetest.Answer(407), StageConnect, ReasonProxyAuthRefused, false},
		{"429 to CONNECT", probetest.Answer(429), StageConnect, ReasonConnectRefused, false},
		{"451 to CONNECT", probetest.Answer(451), StageConnect, ReasonConnectRefused, false},
		{"301 to CONNECT", probetest.Answer(301), StageConnect, ReasonConnectFailed, false},
		{"402 to CONNECT", probetest.Answer(402), StageConnect, ReasonConnectRefused, false},
		{"500 to CONNECT", probetest.Answer(500), StageConnect, ReasonUpstreamFailed, false},
		{"501 to CONNECT: a web server", probetest.Answer(501), StageConnect, ReasonConnectFailed, false},
		{"502 to CONNECT", probetest.Answer(502), StageConnect, ReasonUpstreamFailed, false},
		{"503 to CONNECT", probetest.Answer(503), StageConnect, ReasonUpstreamFailed, false},
		{"504 to CONNECT", probetest.Answer(504), StageConnect, ReasonUpstreamFailed, false},
		{"junk", probetest.Say("SSH-2.0-OpenSSH_9.2\r\n\r\n"), StageConnect, ReasonConnectFailed, false},
		{"junk headers", probetest.Say("HTTP/1.1 200 OK\r\nno colon here\r\n\r\n"), StageConnect, ReasonConnectFailed, false},
		{"endless headers", probetest.Drip("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-More: and more\r\n", 2000), 0), StageConnect, ReasonConnectFailed, false},
		{"a folded header line, then closes", probetest.Say("HTTP/1.1  200 OK\r\nVia: 1.1 a,\r\n 1.1 b\r\n\r\n"), StageTLS, ReasonTLSHandshakeFailed, false},
		{"opens the tunnel and hangs", probetest.SayAndHang(opened), StageTLS, ReasonTLSTimeout, true},
		{"opens the tunnel and closes", probetest.Say(opened), StageTLS, ReasonTLSHandshakeFailed, false},
		{"opens the tunnel, sends a page and hangs", probetest.SayAndHang(opened + "<html>please pay</html>"), StageTLS, ReasonTLSHandshakeFailed, false},
	}
}

func TestFaultsOfTheProxy(t *testing.T) {
	prober := New(probetest.NewCA(t).Pool())
	for _, f := range proxyFaults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			checkFault(t, prober, f, probetest.StartProxy(t, f.proxy))
		})
	}
}

// timeout is long for faults that must not reach it, and short for those that wait for it.
func (f fault) timeout() time.Duration {
	if f.stalls {
		return impatient
	}
	return patient
}

func checkFault(t *testing.T, prober *Prober, f fault, proxy *probetest.Proxy) {
	t.Helper()
	probeFault(t, prober, f, request(proxy, f.timeout()))
}

func probeFault(t *testing.T, prober *Prober, f fault, req Request) Result {
	t.Helper()
	r := prober.Probe(t.Context(), req)
	assert.Equal(t, outcomeOf(f.reason), r.Outcome)
	assert.Equal(t, f.reason, r.Reason, r.Message)
	assert.Equal(t, f.stage, r.Stage)
	assert.True(t, strings.HasPrefix(r.Message, f.stage.String()+": "), "%q names its stage", r.Message)
	assert.Less(t, len(r.Message), 512)
	if f.stalls {
		assertCostsTheTimeout(t, r, f.timeout())
	} else {
		assert.Less(t, r.Latency, patient, "known before the timeout")
	}
	return r
}

func TestConnectionRefused(t *testing.T) {
	proxy := probetest.StartProxy(t, probetest.Hang)
	proxy.Close()
	r := New(nil).Probe(t.Context(), request(proxy, patient))
	assert.Equal(t, ReasonDialFailed, r.Reason)
	assert.Equal(t, StageDial, r.Stage)
	assert.Equal(t, "dial: connection refused", r.Message)
}

// When the queue of a listener is full the kernel drops further handshakes: the dial
// times out.
func TestDialTimeout(t *testing.T) {
	addr := fullListener(t)
	req := request(&probetest.Proxy{Server: &probetest.Server{Addr: addr}}, impatient)
	r := New(nil).Probe(t.Context(), req)
	assert.Equal(t, ReasonDialTimeout, r.Reason, r.Message)
	assertCostsTheTimeout(t, r, impatient)
}

func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	sa, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: sa.(*syscall.SockaddrInet4).Port}).String()
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return err != nil
	}, patient, time.Millisecond)
	return addr
}

func TestFaultsBehindThePlainProxy(t *testing.T) {
	plain := func(b probetest.Behaviour) Result {
		proxy := probetest.StartProxy(t, b)
		req := request(proxy, patient)
		req.HealthCheck.ProbeURL = "http://" + targetName
		return New(nil).Probe(t.Context(), req)
	}
	target := probetest.ServeHTTP(t, probetest.Status(204))
	assert.Equal(t, Success, plain(probetest.Forward(probetest.To(target.Addr))).Outcome)

	r := plain(probetest.Answer(407))
	assert.Equal(t, ReasonProxyAuthRefused, r.Reason)
	assert.Equal(t, StageHTTP, r.Stage)
	assert.Equal(t, ReasonUnexpectedStatus, plain(probetest.Answer(503)).Reason)
	assert.Equal(t, ReasonResponseFailed, plain(probetest.CloseAtOnce).Reason)
	assert.Equal(t, ReasonResponseFailed, plain(probetest.Reset).Reason)
}
