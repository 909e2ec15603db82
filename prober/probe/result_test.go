package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// reasons are the values of all constants of type Reason.
func reasons(t testing.TB) []Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "result.go", nil, 0)
	require.NoError(t, err)
	var out []Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Reason" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			out = append(out, Reason(text))
		}
		return true
	})
	require.Greater(t, len(out), 30)
	return out
}

// Each reason is documented, and is valid in a condition.
func TestEveryReasonIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/health.md")
	require.NoError(t, err)
	for _, r := range reasons(t) {
		assert.Contains(t, string(doc), "| `"+string(r)+"` |", "docs/health.md")
		assert.Regexp(t, `^[A-Z][A-Za-z]+$`, r)
	}
}

// Failures that the target cannot cause are never suppressed because of it.
func TestFarReasons(t *testing.T) {
	far := map[Reason]bool{}
	for _, r := range reasons(t) {
		far[r] = r.Far()
	}
	for _, near := range []Reason{
		ReasonDialFailed, ReasonDialTimeout, ReasonProxyNotResolved, ReasonProxyTLSFailed, ReasonProxyTLSTimeout, ReasonProxyTLSUntrusted,
		ReasonProxyAuthRefused, ReasonConnectRefused, ReasonCredentialsRefused, ReasonOpenProxy, ReasonProbeSucceeded,
	} {
		assert.False(t, far[near], near)
	}
	for _, r := range []Reason{ReasonUpstreamFailed, ReasonConnectTimeout, ReasonTLSTimeout, ReasonUnexpectedStatus, ReasonResponseTimeout, ReasonHeaderLeak} {
		assert.True(t, far[r], r)
	}
	assert.True(t, (&Result{Reason: ReasonConnectRefused, Forwarded: true}).Far())
}

// nothing is the address of a proxy that is never dialled.
func nothing() *probetest.Proxy {
	return &probetest.Proxy{Server: &probetest.Server{Addr: "192.0.2.1:3128"}}
}

// Exhausted resources of the prober are not failures of the fleet.
func TestResourceExhaustionIsInconclusive(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT} {
		prober := New(nil)
		prober.dial = func(context.Context, time.Time, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", errno)}
		}
		r := prober.Probe(t.Context(), request(nothing(), patient))
		assert.Equal(t, Inconclusive, r.Outcome)
		assert.Equal(t, ReasonProberFault, r.Reason)
		assert.Equal(t, "dial: "+errno.Error(), r.Message)
	}
}

func TestClassifyDials(t *testing.T) {
	for _, tc := range []struct {
		err    error
		reason Reason
	}{
		{syscall.ECONNREFUSED, ReasonDialFailed},
		{syscall.EHOSTUNREACH, ReasonProxyUnreachable},
		{syscall.ENETUNREACH, ReasonProxyUnreachable},
		{syscall.ETIMEDOUT, ReasonDialTimeout},
		{os.ErrDeadlineExceeded, ReasonDialTimeout},
		{context.DeadlineExceeded, ReasonDialTimeout},
		{&net.DNSError{IsNotFound: true}, ReasonProxyNotResolved},
		{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, ReasonResolverFailed},
		{&net.DNSError{IsTimeout: true}, ReasonResolverFailed},
		{errors.New("something else"), ReasonProxyUnreachable},
	} {
		prober := New(nil)
		prober.dial = func(context.Context, time.Time, string) (net.Conn, error) {
			return nil, fmt.Errorf("dial: %w", tc.err)
		}
		r := prober.Probe(t.Context(), request(nothing(), patient))
		assert.Equal(t, tc.reason == ReasonResolverFailed, r.Outcome == Inconclusive, "what the resolver lacks is not the proxy's fault")
		assert.Equal(t, tc.reason, r.Reason, tc.err.Error())
		assert.NotContains(t, r.Message, "something else", "unknown errors are not repeated")
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for s := range StageCount + 1 {
		require.NotEmpty(t, s.String())
		require.False(t, seen[s.String()], "two stages called %s", s)
		seen[s.String()] = true
	}
	assert.Equal(t, "success failure inconclusive", fmt.Sprintf("%s %s %s", Success, Failure, Inconclusive))
}

func TestLoadRoots(t *testing.T) {
	ca, dir := probetest.NewCA(t), t.TempDir()
	good, empty := dir+"/ca.pem", dir+"/empty.pem"
	require.NoError(t, os.WriteFile(good, ca.PEM(), 0o600))
	require.NoError(t, os.WriteFile(empty, []byte("no certificate"), 0o600))

	pool, err := LoadRoots(good)
	require.NoError(t, err)
	assert.True(t, pool.Equal(ca.Pool()), "the file's certificates and no others")
	_, err = LoadRoots(empty)
	assert.ErrorContains(t, err, empty+" contains no PEM certificate")
	_, err = LoadRoots(dir + "/missing.pem")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestFailureLongAfterTheDeadlineIsInconclusive: this process stood still, whatever the
// failure looks like when it goes on.
func TestFailureLongAfterTheDeadlineIsInconclusive(t *testing.T) {
	for name, tc := range map[string]struct {
		late    time.Duration
		outcome Outcome
		reason  Reason
	}{
		"in time":    {-time.Hour, Failure, ReasonDialFailed},
		"a bit late": {time.Second, Failure, ReasonDialFailed},
		"long after": {suspendedAfter + time.Minute, Inconclusive, ReasonProberFault},
	} {
		t.Run(name, func(t *testing.T) {
			prober := New(nil)
			prober.dial = func(context.Context, time.Time, string) (net.Conn, error) { return nil, syscall.ECONNRESET }
			r := prober.Probe(t.Context(), request(nothing(), -tc.late)) // its deadline is that far behind
			assert.Equal(t, tc.outcome, r.Outcome, r.Message)
			assert.Equal(t, tc.reason, r.Reason)
		})
	}
}

const canary = "CANARY-7f3a"

// parrots are proxies that repeat the credentials wherever the protocol has text.
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

// A hostile proxy could leak the credentials into status, logs and Events by quoting them
// in an error.
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
