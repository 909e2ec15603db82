package probe

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// resolving has the prober ask this name server.
func resolving(p *Prober, names *probetest.NameServer) *Prober {
	resolver := names.Resolver()
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
	prober := resolving(New(nil), probetest.ServeNames(t, probetest.Zone{"other.example": {"192.0.2.1"}}))
	r := prober.Probe(t.Context(), named(nothing(), "proxy.example", patient))
	assert.Equal(t, Failure, r.Outcome)
	assert.Equal(t, ReasonProxyNotResolved, r.Reason, r.Message)
	assert.Equal(t, StageDial, r.Stage)
}

// A prober whose name server is away must not take that for the fleet's death.
func TestNameServerFailureIsInconclusive(t *testing.T) {
	for name, silent := range map[string]bool{"fails": false, "is silent": true} {
		t.Run(name, func(t *testing.T) {
			r := resolving(New(nil), probetest.ServeNoNames(t, silent)).Probe(t.Context(), named(nothing(), "proxy.example", impatient))
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
		prober := resolving(New(ca.Pool()), probetest.ServeNames(t, probetest.Zone{"proxy.example": addresses}))
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
