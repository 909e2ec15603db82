package probe

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

const canary = "CANARY-7f3a"

// parrots are proxies that say the credentials back wherever text is to be had.
func parrots(ca *probetest.CA, t *testing.T) map[string]probetest.Behaviour {
	says := func(format string) probetest.Behaviour {
		return func(c net.Conn) {
			req, err := http.ReadRequest(bufio.NewReader(c))
			if err == nil {
				auth := req.Header.Get("Proxy-Authorization")
				_, _ = io.WriteString(c, strings.ReplaceAll(format, "%", canary+" "+auth))
			}
		}
	}
	return map[string]probetest.Behaviour{
		"in the reason phrase":    says("HTTP/1.1 407 no: %\r\n\r\n"),
		"in a 403":                says("HTTP/1.1 403 %\r\nX: %\r\n\r\n%"),
		"in place of HTTP":        says("%\r\n\r\n"),
		"in place of a header":    says("HTTP/1.1 200 OK\r\n%\r\n\r\n"),
		"in the tunnel":           says("HTTP/1.1 200 OK\r\n\r\n%"),
		"in a certificate":        parrotCertificate(t, probetest.NewCA(t), canary+".invalid"),
		"in a certified name":     parrotCertificate(t, ca, canary+".invalid"),
		"in the target's answer":  parrotTarget(t, ca, "HTTP/1.1 302 "+canary+"\r\nLocation: https://"+canary+"/\r\n\r\n"),
		"in place of an answer":   parrotTarget(t, ca, canary+" 200 OK\r\n\r\n"),
		"in place of its headers": parrotTarget(t, ca, "HTTP/1.1 200 OK\r\n"+canary+"\r\n\r\n"),
	}
}

func parrotCertificate(t *testing.T, ca *probetest.CA, name string) probetest.Behaviour {
	target := probetest.ServeTLS(t, ca.Certificate(t, name, time.Now().Add(time.Hour)), probetest.Status(204))
	return probetest.Forward(probetest.To(target.Addr))
}

func parrotTarget(t *testing.T, ca *probetest.CA, answer string) probetest.Behaviour {
	var cert tls.Certificate = ca.Certificate(t, targetName, time.Now().Add(time.Hour))
	return probetest.Forward(probetest.To(probetest.ServeTLS(t, cert, probetest.Text(answer)).Addr))
}

// A proxy knows the credentials that it is sent, and a hostile one could have them
// shown in status, logs and events by quoting them in an error.
func TestResultsDoNotRepeatThePeer(t *testing.T) {
	ca := probetest.NewCA(t)
	secret := credentials.New("crawler-"+canary, canary)
	encoded := strings.TrimPrefix(must(authorization(&secret)), "Basic ")
	for name, behaviour := range parrots(ca, t) {
		for _, scheme := range []string{"https", "http"} {
			t.Run(scheme+" "+name, func(t *testing.T) {
				req := request(probetest.StartProxy(t, behaviour), patient)
				req.HealthCheck.ProbeURL = scheme + "://" + targetName + "/"
				req.Credentials = &secret
				r := New(ca.Pool()).Probe(t.Context(), req)
				shown := fmt.Sprintf("%+v %#v", r, r)
				assert.Equal(t, name == "in the tunnel" && scheme == "http", r.Outcome == Success)
				assert.NotContains(t, shown, canary)
				assert.NotContains(t, shown, encoded)
			})
		}
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}
