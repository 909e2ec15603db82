package probe

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// The target's name resolves nowhere, and the only address that is dialled is the
// proxy's.
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

	impossible := credentials.New("craw:ler", "word")
	req.Credentials = &impossible
	r = prober.Probe(t.Context(), req)
	assert.Equal(t, ReasonCredentialsRefused, r.Reason)
	assert.Equal(t, Failure, r.Outcome)
	assert.Contains(t, r.Message, "colon")
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
