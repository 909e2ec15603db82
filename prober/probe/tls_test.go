package probe

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func overTLS(req Request) Request {
	req.Scheme = v1alpha1.SchemeHTTPS
	return req
}

func TestProxyWithTLS(t *testing.T) {
	ca := probetest.NewCA(t)
	cert := ca.Certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	forward := probetest.OverTLS(cert, probetest.Forward(probetest.To(goodTarget(t, ca).Addr)))
	r := New(ca.Pool()).Probe(t.Context(), overTLS(request(probetest.StartProxy(t, forward), patient)))
	assert.Equal(t, Success, r.Outcome, r.Message)
	for s := StageDial; s < StageCount; s++ {
		assert.Positive(t, r.Stages[s], "stage %s was timed", s)
	}

	plain := probetest.ServeHTTP(t, probetest.Status(204))
	req := overTLS(request(probetest.StartProxy(t, probetest.OverTLS(cert, probetest.Forward(probetest.To(plain.Addr)))), patient))
	req.HealthCheck.ProbeURL = "http://" + targetName + "/"
	assert.Equal(t, Success, New(ca.Pool()).Probe(t.Context(), req).Outcome, "without a tunnel as well")
}

func TestFaultsOfAProxyWithTLS(t *testing.T) {
	ca, other := probetest.NewCA(t), probetest.NewCA(t)
	valid, past := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	works := probetest.Forward(probetest.To(goodTarget(t, ca).Addr))
	with := func(cert tls.Certificate, b probetest.Behaviour) probetest.Behaviour {
		return probetest.OverTLS(cert, b)
	}
	good := ca.Certificate(t, "127.0.0.1", valid)
	for _, f := range []fault{
		{"its certificate is another authority's", with(other.Certificate(t, "127.0.0.1", valid), works), StageProxyTLS, ReasonProxyTLSUntrusted, false},
		{"its certificate is for another name", with(ca.Certificate(t, "other.invalid", valid), works), StageProxyTLS, ReasonProxyTLSUntrusted, false},
		{"its certificate has expired", with(ca.Certificate(t, "127.0.0.1", past), works), StageProxyTLS, ReasonProxyTLSUntrusted, false},
		{"speaks no TLS", probetest.Say("HTTP/1.1 400 Bad Request\r\n\r\n"), StageProxyTLS, ReasonProxyTLSFailed, false},
		{"closes instead of a handshake", probetest.CloseAtOnce, StageProxyTLS, ReasonProxyTLSFailed, false},
		{"hangs instead of a handshake", probetest.Hang, StageProxyTLS, ReasonProxyTLSTimeout, true},
		{"407 to CONNECT within TLS", with(good, probetest.Answer(407)), StageConnect, ReasonProxyAuthRefused, false},
		{"hangs in CONNECT within TLS", with(good, probetest.Hang), StageConnect, ReasonConnectTimeout, true},
		{"hangs in the tunnel within TLS", with(good, probetest.SayAndHang(opened)), StageTLS, ReasonTLSTimeout, true},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := probeFault(t, New(ca.Pool()), f, overTLS(request(probetest.StartProxy(t, f.proxy), f.timeout())))
			assert.NotContains(t, r.Message, "400 Bad Request")
		})
	}
	r := New(ca.Pool()).Probe(t.Context(), request(probetest.StartProxy(t, with(good, works)), patient))
	assert.Equal(t, Failure, r.Outcome, "spoken to without TLS")
	assert.Equal(t, ReasonConnectFailed, r.Reason, r.Message)
}

func TestDirectCheck(t *testing.T) {
	ca := probetest.NewCA(t)
	names := serveNames(t, zone{targetName: {"127.0.0.1"}})
	target := goodTarget(t, ca)
	prober := resolving(New(ca.Pool()), names)
	req := request(nothing(), patient)
	req.HealthCheck.ProbeURL = "https://" + targetName + ":" + portOfAddr(target.Addr) + "/"

	r := prober.Direct(t.Context(), req.HealthCheck)
	assert.Equal(t, Success, r.Outcome, r.Message)
	assert.Equal(t, "target.invalid answered 204 without a proxy", r.Message)
	assert.Zero(t, r.Stages[StageConnect])

	req.HealthCheck.ProbeURL = "http://" + probetest.ServeHTTP(t, probetest.Echo).Addr + "/"
	req.HealthCheck.ExitProof = &v1alpha1.ExitProof{}
	r = prober.Direct(t.Context(), req.HealthCheck)
	assert.Equal(t, Success, r.Outcome, r.Message)

	target.Close()
	req.HealthCheck.ProbeURL = "https://" + targetName + ":" + portOfAddr(target.Addr) + "/"
	req.HealthCheck.ExitProof = nil
	r = prober.Direct(t.Context(), req.HealthCheck)
	assert.Equal(t, ReasonDialFailed, r.Reason, r.Message)
}
