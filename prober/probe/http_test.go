package probe

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
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
	const canary = "CANARY-5f2c"
	for _, seed := range []string{
		"HTTP/1.1 204 No Content\r\nX: " + canary + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + `{"nonce":"` + nonceWord + `","peer":"192.0.2.7","forwarded":{"Via":"` + canary + `"}}`,
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
