package probe

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// targetFault is a fault of the target behind a working proxy.
type targetFault struct {
	name   string
	handle func(net.Conn, *http.Request)
	stage  Stage
	reason Reason
	stalls bool
}

func targetFaults() []targetFault {
	return []targetFault{
		{"wrong status", probetest.Status(404), StageHTTP, ReasonUnexpectedStatus, false},
		{"500", probetest.Status(500), StageHTTP, ReasonUnexpectedStatus, false},
		{"refuses this exit with 401", probetest.Status(401), StageHTTP, ReasonTargetRefused, false},
		{"refuses this exit with 403", probetest.Status(403), StageHTTP, ReasonTargetRefused, false},
		{"refuses this exit with 429", probetest.Status(429), StageHTTP, ReasonTargetRefused, false},
		{"refuses this exit with 451", probetest.Status(451), StageHTTP, ReasonTargetRefused, false},
		{"407 from the target", probetest.Status(407), StageHTTP, ReasonUnexpectedStatus, false},
		{"redirect", probetest.Text("HTTP/1.1 302 Found\r\nLocation: https://target.invalid/ok\r\n\r\n"), StageHTTP, ReasonUnexpectedStatus, false},
		{"closes instead of an answer", probetest.Text(""), StageHTTP, ReasonResponseFailed, false},
		{"closes in mid-headers", probetest.Text("HTTP/1.1 200 OK\r\nServer: x"), StageHTTP, ReasonResponseFailed, false},
		{"junk instead of an answer", probetest.Text("220 smtp ready\r\n"), StageHTTP, ReasonResponseFailed, false},
		{"endless headers", endlessHeaders, StageHTTP, ReasonResponseFailed, false},
		{"nothing but interim answers", probetest.Text(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20)), StageHTTP, ReasonResponseFailed, false},
		{"hangs instead of an answer", probetest.TextAndHang(""), StageHTTP, ReasonResponseTimeout, true},
		{"hangs after the headers", probetest.TextAndHang("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"), StageBody, ReasonResponseTimeout, true},
		{"closes after the headers", probetest.Text("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"), StageBody, ReasonResponseIncomplete, false},
		{"closes in mid-chunk", probetest.Text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), StageBody, ReasonResponseIncomplete, false},
		{"drips its body", dripBody, StageBody, ReasonResponseTimeout, true},
	}
}

func endlessHeaders(c net.Conn, _ *http.Request) {
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
	for err == nil {
		_, err = io.WriteString(c, "X-More: and more\r\n")
	}
}

func dripBody(c net.Conn, _ *http.Request) {
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
	for err == nil {
		time.Sleep(dripGap)
		_, err = c.Write([]byte("x"))
	}
}

func TestFaultsOfTheTarget(t *testing.T) {
	ca := probetest.NewCA(t)
	cert := ca.Certificate(t, targetName, time.Now().Add(time.Hour))
	prober := New(ca.Pool())
	for _, f := range targetFaults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			target := probetest.ServeTLS(t, cert, f.handle)
			proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(target.Addr)))
			checkFault(t, prober, fault{f.name, nil, f.stage, f.reason, f.stalls}, proxy)
		})
	}
}

func TestAcceptedResponses(t *testing.T) {
	ca := probetest.NewCA(t)
	cert := ca.Certificate(t, targetName, time.Now().Add(time.Hour))
	for name, text := range map[string]string{
		"a body to the end of the connection": "HTTP/1.0 200 OK\r\n\r\nhello",
		"a chunked body":                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"an interim answer first":             "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"a body longer than the bound":        "HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + strings.Repeat("x", 2*maxBodyBytes),
	} {
		t.Run(name, func(t *testing.T) {
			target := probetest.ServeTLS(t, cert, probetest.Text(text))
			proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(target.Addr)))
			r := New(ca.Pool()).Probe(t.Context(), request(proxy, patient))
			assert.Equal(t, Success, r.Outcome, r.Message)
		})
	}
}

func TestCertificates(t *testing.T) {
	ca, other := probetest.NewCA(t), probetest.NewCA(t)
	valid, past := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	for _, tc := range []struct {
		name   string
		cert   tls.Certificate
		reason Reason
		text   string
	}{
		{"another authority: an intercepting proxy", other.Certificate(t, targetName, valid), ReasonTLSUntrusted, "intercepts"},
		{"another name", ca.Certificate(t, "other.invalid", valid), ReasonTLSNameMismatch, "not for target.invalid"},
		{"expired", ca.Certificate(t, targetName, past), ReasonTLSExpired, "expired on 20"},
		{"not valid yet", ca.Certificate(t, targetName, valid.Add(10*time.Hour)), ReasonTLSExpired, "not valid before 20"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			target := probetest.ServeTLS(t, tc.cert, probetest.Status(204))
			proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(target.Addr)))
			r := New(ca.Pool()).Probe(t.Context(), request(proxy, patient))
			assert.Equal(t, Failure, r.Outcome)
			assert.Equal(t, tc.reason, r.Reason, r.Message)
			assert.Equal(t, StageTLS, r.Stage)
			assert.Contains(t, r.Message, tc.text)
		})
	}
}

func TestCertificateOfATargetByIPAddress(t *testing.T) {
	ca := probetest.NewCA(t)
	target := probetest.ServeTLS(t, ca.Certificate(t, "192.0.2.7", time.Now().Add(time.Hour)), probetest.Status(204))
	proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(target.Addr)))
	req := request(proxy, patient)
	req.HealthCheck.ProbeURL = "https://192.0.2.7:8443/"
	r := New(ca.Pool()).Probe(t.Context(), req)
	assert.Equal(t, Success, r.Outcome, r.Message)
}
