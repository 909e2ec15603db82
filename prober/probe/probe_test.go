package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func TestWorkingProxy(t *testing.T) {
	ca := probetest.NewCA(t)
	proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(goodTarget(t, ca).Addr)))

	r := New(ca.Pool()).Probe(t.Context(), request(proxy, patient))

	assert.Equal(t, Success, r.Outcome)
	assert.Equal(t, ReasonProbeSucceeded, r.Reason)
	assert.Equal(t, StageBody, r.Stage)
	assert.Equal(t, 204, r.HTTPStatus)
	assert.Equal(t, "target.invalid answered 204 through the proxy", r.Message)
	var sum time.Duration
	for s := StageDial; s < StageCount; s++ {
		assert.Equal(t, s != StageProxyTLS, r.Stages[s] > 0, "stage %s was timed", s)
		sum += r.Stages[s]
	}
	assert.InDelta(t, r.Latency, sum, float64(time.Millisecond), "the stages add up to the latency")
	assert.WithinDuration(t, time.Now(), r.Start, time.Minute)
}

func TestEveryProbeOpensItsOwnConnection(t *testing.T) {
	ca := probetest.NewCA(t)
	proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(goodTarget(t, ca).Addr)))
	prober := New(ca.Pool())
	for n := 1; n <= 3; n++ {
		require.Equal(t, Success, prober.Probe(t.Context(), request(proxy, patient)).Outcome)
		require.Equal(t, n, proxy.Seen())
	}
	proxy.Set(probetest.Answer(http.StatusServiceUnavailable))
	assert.Equal(t, ReasonUpstreamFailed, prober.Probe(t.Context(), request(proxy, patient)).Reason,
		"a proxy that opens no new tunnels is found out at once")
}

// The target's name has no address, and the prober dials only the proxy.
func TestOnlyTheProxyResolvesTheTarget(t *testing.T) {
	ca := probetest.NewCA(t)
	var asked atomic.Value
	backend := goodTarget(t, ca)
	proxy := probetest.StartProxy(t, probetest.Forward(func(authority string) (string, bool) {
		asked.Store(authority)
		return backend.Addr, true
	}))
	prober := New(ca.Pool())
	prober.dial = func(ctx context.Context, deadline time.Time, addr string) (net.Conn, error) {
		assert.Equal(t, proxy.Addr, addr)
		return dialTCP(ctx, deadline, addr)
	}
	require.Equal(t, Success, prober.Probe(t.Context(), request(proxy, patient)).Outcome)
	assert.Equal(t, targetName+":443", asked.Load())
}

func TestCredentialsAreSent(t *testing.T) {
	ca := probetest.NewCA(t)
	cert := ca.Certificate(t, targetName, time.Now().Add(time.Hour))
	target := probetest.ServeTLS(t, cert, func(c net.Conn, r *http.Request) {
		assert.Empty(t, r.Header.Get("Proxy-Authorization"), "the target gets none of it")
		probetest.Status(204)(c, r)
	})
	route := probetest.To(target.Addr)
	proxy := probetest.StartProxy(t, probetest.Forward(route, probetest.RequireBasic("crawler", "pass:word")))
	prober := New(ca.Pool())
	req := request(proxy, patient)

	r := prober.Probe(t.Context(), req)
	assert.Equal(t, ReasonProxyAuthRefused, r.Reason)
	assert.Contains(t, r.Message, "set credentialsRef")

	wrong := credentials.New("crawler", "stale")
	req.Credentials = &wrong
	r = prober.Probe(t.Context(), req)
	assert.Equal(t, ReasonProxyAuthRefused, r.Reason)
	assert.Contains(t, r.Message, "does not accept the credentials")

	right := credentials.New("crawler", "pass:word")
	req.Credentials = &right
	assert.Equal(t, Success, prober.Probe(t.Context(), req).Outcome)

	for want, impossible := range map[string]credentials.Credentials{
		"setup: username has a colon":             credentials.New("craw:ler", "word"),
		"setup: password ends with a newline":     credentials.New("crawler", "pass:word\n"),
		"setup: password contains a tab, which B": credentials.New("crawler", "pass:\tword"),
	} {
		seen := proxy.Seen()
		req.Credentials = &impossible
		r = prober.Probe(t.Context(), req)
		assert.Equal(t, ReasonCredentialsRefused, r.Reason)
		assert.Equal(t, Failure, r.Outcome)
		assert.Contains(t, r.Message, want)
		assert.Equal(t, seen, proxy.Seen(), "the proxy is not asked")
	}

	proxy.Set(probetest.Forward(route, probetest.RequireBasic("api-key", "")))
	key := credentials.New("api-key", "")
	req.Credentials = &key
	assert.Equal(t, Success, prober.Probe(t.Context(), req).Outcome, "an empty password is one")
}

func TestCanceledProbeEndsAtOnce(t *testing.T) {
	ca := probetest.NewCA(t)
	stalls := map[string]probetest.Behaviour{
		"in CONNECT": probetest.Hang,
		"in TLS":     probetest.SayAndHang("HTTP/1.1 200 OK\r\n\r\n"),
	}
	for name, behaviour := range stalls {
		t.Run(name, func(t *testing.T) {
			proxy := probetest.StartProxy(t, behaviour)
			ctx, cancel := context.WithCancel(t.Context())
			results := make(chan Result, 1)
			go func() { results <- New(ca.Pool()).Probe(ctx, request(proxy, time.Hour)) }()
			require.Eventually(t, func() bool { return proxy.Seen() == 1 }, patient, time.Millisecond)
			cancel()
			r := <-results
			assert.Equal(t, ReasonCanceled, r.Reason)
			assert.Equal(t, Inconclusive, r.Outcome)
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := New(ca.Pool()).Probe(ended, request(probetest.StartProxy(t, probetest.Hang), time.Hour))
	assert.Equal(t, ReasonCanceled, r.Reason, "before the dial")
}

// deadlines records what a probe sets on its connection.
type deadlines struct {
	net.Conn
	set *[]time.Time
}

func (d deadlines) SetDeadline(t time.Time) error {
	*d.set = append(*d.set, t)
	return d.Conn.SetDeadline(t)
}
func (d deadlines) SetReadDeadline(time.Time) error  { panic("the probe has one deadline") }
func (d deadlines) SetWriteDeadline(time.Time) error { panic("the probe has one deadline") }

func TestOneDeadlineForAllStages(t *testing.T) {
	ca := probetest.NewCA(t)
	proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(goodTarget(t, ca).Addr)))
	prober := New(ca.Pool())
	var dialled time.Time
	var set []time.Time
	prober.dial = func(ctx context.Context, deadline time.Time, addr string) (net.Conn, error) {
		dialled = deadline
		conn, err := dialTCP(ctx, deadline, addr)
		return deadlines{conn, &set}, err
	}
	r := prober.Probe(t.Context(), request(proxy, patient))
	require.Equal(t, Success, r.Outcome)
	assert.Equal(t, r.Start.Add(patient), dialled)
	assert.Equal(t, []time.Time{dialled}, set, "set once, to the dial's")
}

// resolving makes the prober use this name server.
func resolving(p *Prober, names *nameServer) *Prober {
	resolver := names.resolver()
	p.dial = func(ctx context.Context, deadline time.Time, addr string) (net.Conn, error) {
		d := dialer(deadline)
		d.Resolver = resolver
		return d.DialContext(ctx, "tcp", addr)
	}
	return p
}

func named(p *probetest.Proxy, name string, timeout time.Duration) Request {
	req := request(p, timeout)
	req.Host = name
	return req
}

func TestUnresolvableProxyNameIsAFailure(t *testing.T) {
	prober := resolving(New(nil), serveNames(t, zone{"other.example": {"192.0.2.1"}}))
	r := prober.Probe(t.Context(), named(nothing(), "proxy.example", patient))
	assert.Equal(t, Failure, r.Outcome)
	assert.Equal(t, ReasonProxyNotResolved, r.Reason, r.Message)
	assert.Equal(t, StageDial, r.Stage)
}

// When the prober's name server is down the fleet does not fail.
func TestNameServerFailureIsInconclusive(t *testing.T) {
	for name, silent := range map[string]bool{"fails": false, "is silent": true} {
		t.Run(name, func(t *testing.T) {
			r := resolving(New(nil), serveNoNames(t, silent)).Probe(t.Context(), named(nothing(), "proxy.example", impatient))
			assert.Equal(t, Inconclusive, r.Outcome)
			assert.Equal(t, ReasonResolverFailed, r.Reason, r.Message)
			assert.Less(t, r.Latency, impatient+slack)
		})
	}
}

// A proxy that listens in one family, under a name that has addresses in both,
// whichever comes first.
func TestDualStackNameWithOneWorkingFamily(t *testing.T) {
	ca := probetest.NewCA(t)
	proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(goodTarget(t, ca).Addr)))
	for _, addresses := range [][]string{{"::1", "127.0.0.1"}, {"127.0.0.1", "::1"}, {"127.0.0.1"}} {
		prober := resolving(New(ca.Pool()), serveNames(t, zone{"proxy.example": addresses}))
		r := prober.Probe(t.Context(), named(proxy, "proxy.example", patient))
		assert.Equal(t, Success, r.Outcome, "%v: %s", addresses, r.Message)
	}
}

func TestIPv6OnlyProxyAndTarget(t *testing.T) {
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	far, err := net.Listen("tcp6", "[::1]:0")
	require.NoError(t, err)
	echo := probetest.ServeOn(t, far, probetest.EchoConn)
	proxy := &probetest.Proxy{Server: probetest.ServeOn(t, ln, probetest.Forward(probetest.To(echo.Addr)))}
	r := New(nil).Probe(t.Context(), proving(request(proxy, patient)))
	assert.Equal(t, Success, r.Outcome, r.Message)
	assert.Equal(t, "::1", r.Exit.String())
}

// A thousand concurrent probes, each through its own proxy with its own user, target and
// status: state that two probes share causes a wrong result.
func TestConcurrentProbesShareNoState(t *testing.T) {
	const probes = 1000
	prober := New(nil)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range probes {
		proxy := probetest.StartProxy(t, numbered(i))
		req := numberedRequest(proxy, i)
		wg.Go(func() {
			<-gate
			r := prober.Probe(t.Context(), req)
			assert.Equal(t, statusOf(i), r.HTTPStatus, "proxy %d: %s", i, r.Message)
			assert.Equal(t, Success, r.Outcome, "proxy %d: %s", i, r.Message)
			assert.Equal(t, fmt.Sprintf("target-%d.invalid answered %d through the proxy", i, statusOf(i)), r.Message)
		})
	}
	close(gate)
	wg.Wait()
}

func statusOf(i int) int { return 200 + i%400 }

func numbered(i int) probetest.Behaviour {
	user := strconv.Itoa(i)
	return probetest.Forward(nil, probetest.RequireBasic(user, "password-"+user), func(r *http.Request) int {
		if !strings.HasPrefix(r.Host, "target-"+user+".invalid") {
			return http.StatusBadRequest
		}
		return statusOf(i)
	})
}

func numberedRequest(p *probetest.Proxy, i int) Request {
	secret := credentials.New(strconv.Itoa(i), "password-"+strconv.Itoa(i))
	hc := v1alpha1.HealthCheck{
		ProbeURL:            fmt.Sprintf("http://target-%d.invalid/", i),
		Timeout:             metav1.Duration{Duration: time.Minute},
		ExpectedStatusCodes: []int32{int32(statusOf(i))},
	}
	return Request{Host: p.Host(), Port: p.Port(), HealthCheck: hc.OrDefault(), Credentials: &secret}
}

// BenchmarkProbe and BenchmarkFloor make the same requests through the same proxy;
// what the first takes more is what the prober adds to a bare loop.
func BenchmarkProbe(b *testing.B) {
	ca := probetest.NewCA(b)
	proxy := probetest.StartProxy(b, probetest.Forward(probetest.To(goodTarget(b, ca).Addr)))
	prober, req := New(ca.Pool()), request(proxy, patient)
	b.ReportAllocs()
	for b.Loop() {
		if r := prober.Probe(b.Context(), req); r.Outcome != Success {
			b.Fatal(r.Message)
		}
	}
}

func BenchmarkFloor(b *testing.B) {
	ca := probetest.NewCA(b)
	proxy := probetest.StartProxy(b, probetest.Forward(probetest.To(goodTarget(b, ca).Addr)))
	config := &tls.Config{ServerName: targetName, RootCAs: ca.Pool()}
	b.ReportAllocs()
	for b.Loop() {
		bare(b, proxy.Addr, config)
	}
}

func bare(b *testing.B, addr string, config *tls.Config) {
	b.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(b, err)
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", targetName, targetName)
	_, err = http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	require.NoError(b, err)
	s := tls.Client(c, config)
	fmt.Fprintf(s, "GET /generate_204 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", targetName)
	resp, err := http.ReadResponse(bufio.NewReader(s), nil)
	require.NoError(b, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(b, err)
}
