package probe

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// nonceWord in a script stands for the nonce that the probe sent.
const nonceWord = "NONCE"

// scripted is a connection to a proxy that sends fixed bytes.
type scripted struct {
	net.Conn // nothing else is called
	script   []byte
	told     bytes.Buffer
	answer   *bytes.Reader
}

var nonceParam = regexp.MustCompile(`nonce=([0-9a-f]+)`)

// Read implements net.Conn.
func (s *scripted) Read(p []byte) (int, error) {
	if s.answer == nil {
		script := s.script
		if nonce := nonceParam.FindSubmatch(s.told.Bytes()); nonce != nil {
			script = bytes.ReplaceAll(script, []byte(nonceWord), nonce[1])
		}
		s.answer = bytes.NewReader(script)
	}
	return s.answer.Read(p)
}

// Write implements net.Conn.
func (s *scripted) Write(p []byte) (int, error) { return s.told.Write(p) }

// SetDeadline implements net.Conn.
func (s *scripted) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (s *scripted) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }

// Close implements net.Conn.
func (s *scripted) Close() error { return nil }

// FuzzConversation has a proxy send arbitrary bytes: the result has a known reason, a
// message without those bytes, and is a success only if the response is an expected one.
func FuzzConversation(f *testing.F) {
	const canary = "CANARY=5f2c" // with a character that no header name has
	for _, seed := range []string{
		"HTTP/1.1 204 No Content\r\nX: " + canary + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + `{"nonce":"` + nonceWord + `","peer":"192.0.2.7","forwarded":{"Via":"` + canary + `"}}`,
		"HTTP/1.1 200 OK\r\nContent-Length: 140\r\n\r\n" + `{"nonce":"` + nonceWord + `","peer":"192.0.2.7","forwarded":{"X-Hush-7c1f-Ip":"","` + canary + `":""},"others":["Hush-Url","Dnt"]}   `,
		"HTTP/1.1 200 " + canary + "\r\n\r\n\x16\x03\x03\x00\x02\x02\x28",
		"HTTP/1.0 407 x\r\nProxy-Authenticate: Basic realm=\"" + canary + "\"\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 302 Found\r\nLocation: http://" + canary + "/\r\nContent-Length: 99\r\n\r\n",
		"SSH-2.0-" + canary, "",
	} {
		for mode := range byte(5) {
			f.Add(mode, []byte(seed))
		}
	}
	user := credentials.New("user", "hush-7c1f")
	known := reasons(f)
	f.Fuzz(func(t *testing.T, mode byte, script []byte) {
		hc := v1alpha1.HealthCheck{ProbeURL: "http://" + targetName + "/x?token=hush-url"}
		req := Request{Host: "proxy.invalid", Port: 3128, Credentials: &user, TestOpen: mode&1 == 0}
		switch mode % 5 {
		case 1:
			hc.ProbeURL = "https://" + targetName + "/x?token=hush-url"
		case 2:
			hc.ExitProof = &v1alpha1.ExitProof{}
		case 3:
			hc.ExitProof = &v1alpha1.ExitProof{OnHeaderLeak: v1alpha1.FailOnHeaderLeak}
		case 4:
			req.Scheme = v1alpha1.SchemeHTTPS
		}
		req.HealthCheck = hc.OrDefault()
		p := &Prober{dial: func(context.Context, time.Time, string) (net.Conn, error) { return &scripted{script: script}, nil }}
		r := p.Probe(t.Context(), req)

		require.Contains(t, known, r.Reason)
		require.Equal(t, r.Outcome == Success, r.Reason == ReasonProbeSucceeded)
		for _, secret := range []string{canary, "hush-url", "hush-7c1f", "\n"} {
			require.NotContains(t, r.Message, secret)
		}
		require.Less(t, len(r.Message), 400)
		if r.Outcome != Success {
			require.True(t, strings.HasPrefix(r.Message, r.Stage.String()+": "), r.Message)
			return
		}
		require.True(t, slices.Contains(req.HealthCheck.ExpectedStatusCodes, int32(r.HTTPStatus)), r.HTTPStatus)
		require.NotEqual(t, byte(1), mode%5, "nobody has that certificate")
		require.NotEqual(t, byte(4), mode%5, "nobody has that certificate")
		if req.HealthCheck.ExitProof != nil {
			require.True(t, r.Exit.IsValid())
			require.Contains(t, string(script), nonceWord)
		}
		require.False(t, req.TestOpen, "it would have let a stranger through as well")
	})
}

// The proxy has a password and accepts requests without it.
func TestOpenProxyIsDetected(t *testing.T) {
	ca := probetest.NewCA(t)
	route := probetest.To(goodTarget(t, ca).Addr)
	forbidden := probetest.ServeTLS(t, ca.Certificate(t, targetName, time.Now().Add(time.Hour)), probetest.Status(403))
	unlessAsked := func(r *http.Request) int {
		if r.Header.Get("Proxy-Authorization") == "" {
			return 403
		}
		return 0
	}
	page := func(c net.Conn) { probetest.Say("HTTP/1.1 200 OK\r\n\r\n<html>log in</html>")(c) }
	for name, tc := range map[string]struct {
		anonymous probetest.Behaviour // what clients without credentials get
		open      bool
	}{
		"asks for them":              {probetest.Answer(407), false},
		"forbids":                    {probetest.Forward(route, unlessAsked), false},
		"closes":                     {probetest.CloseAtOnce, false},
		"hangs":                      {probetest.Hang, false},
		"opens a tunnel to a page":   {page, false},
		"accepts everyone":           {probetest.Forward(route), true},
		"in, to a target that balks": {probetest.Forward(probetest.To(forbidden.Addr)), true},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := probetest.StartProxy(t, probetest.Forward(route, probetest.RequireBasic("crawler", "secret")))
			timeout := patient
			if name == "hangs" {
				timeout = impatient
			}
			req := request(proxy, timeout)
			secret := credentials.New("crawler", "secret")
			req.Credentials = &secret
			r := New(ca.Pool()).Probe(t.Context(), req)
			require.Equal(t, Success, r.Outcome, r.Message)
			assert.False(t, r.OpenTested, "not unless it is asked for")
			assert.Equal(t, 1, proxy.Seen())

			req.TestOpen = true
			proxy.Alternate(probetest.Forward(route, probetest.RequireBasic("crawler", "secret")), tc.anonymous)
			r = New(ca.Pool()).Probe(t.Context(), req)
			assert.True(t, r.OpenTested)
			assert.Equal(t, tc.open, r.Outcome == Failure, r.Message)
			if tc.open {
				assert.Equal(t, ReasonOpenProxy, r.Reason)
				assert.Equal(t, StageConnect, r.Stage)
				assert.Equal(t, "connect: the proxy accepts requests without credentials: anyone can use it", r.Message)
			}
			assert.Less(t, r.Latency, timeout, "of the probe that counts")
		})
	}
}

func TestOpenProxyForPlainHTTPIsDetected(t *testing.T) {
	target := probetest.ServeHTTP(t, probetest.Status(204))
	secret := credentials.New("crawler", "secret")
	for name, open := range map[string]bool{"open": true, "closed": false} {
		checks := []probetest.Check{probetest.RequireBasic("crawler", "secret")}
		if open {
			checks = nil
		}
		req := request(probetest.StartProxy(t, probetest.Forward(probetest.To(target.Addr), checks...)), patient)
		req.HealthCheck.ProbeURL, req.Credentials, req.TestOpen = "http://"+targetName+"/", &secret, true
		r := New(nil).Probe(t.Context(), req)
		assert.True(t, r.OpenTested, name)
		assert.Equal(t, open, r.Reason == ReasonOpenProxy, "%s: %s", name, r.Message)
	}
}
