package probe

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// targetName resolves nowhere: RFC 6761 keeps .invalid free.
	targetName = "target.invalid"
	// patient is a timeout that no test reaches.
	patient = 20 * time.Second
	// impatient is a timeout that a test waits for, yet long enough for a busy
	// machine to reach the stage that stalls.
	impatient = 3 * time.Second
	// slack is what a busy machine may add to it.
	slack = 5 * time.Second
)

// request asks for https://target.invalid/ through the proxy.
func request(p *probetest.Proxy, timeout time.Duration) Request {
	hc := v1alpha1.HealthCheck{
		ProbeURL: "https://" + targetName + "/generate_204?token=hush",
		Timeout:  metav1.Duration{Duration: timeout},
	}
	return Request{Host: p.Host(), Port: p.Port(), HealthCheck: hc.OrDefault()}
}

func portOfAddr(addr string) string {
	_, port, _ := net.SplitHostPort(addr) // from a listener: well-formed
	return port
}

// goodTarget is a TLS target that answers 204 with a certificate of ca.
func goodTarget(tb testing.TB, ca *probetest.CA) *probetest.Server {
	tb.Helper()
	return probetest.ServeTLS(tb, ca.Certificate(tb, targetName, time.Now().Add(time.Hour)), probetest.Status(204))
}

// assertCostsTheTimeout checks that a probe of a stalled proxy took the timeout:
// not less, since it had to wait, nor a multiple of it.
func assertCostsTheTimeout(t *testing.T, r Result, timeout time.Duration) {
	t.Helper()
	assert.GreaterOrEqual(t, r.Latency, timeout-time.Millisecond)
	assert.Less(t, r.Latency, timeout+slack)
}
