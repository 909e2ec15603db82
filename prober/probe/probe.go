// Package probe makes one request through one proxy, as a crawler would, and
// says how it went.
//
// Every probe opens a connection of its own: a kept tunnel would hide a proxy
// that opens no new ones. One absolute deadline covers all stages, so that a
// proxy that stalls costs exactly the timeout, wherever it stalls. The name of
// the target is resolved by the proxy alone, and redirects are not followed.
package probe

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
)

// Request says what to probe and how.
type Request struct {
	// Host and Port of the proxy. Host is an address or a name.
	Host string
	Port int32
	// Scheme that the proxy itself speaks; the zero value means http.
	Scheme v1alpha1.Scheme
	// HealthCheck with every field set, as OrDefault returns it.
	HealthCheck v1alpha1.HealthCheck
	// Credentials for the proxy; nil sends none.
	Credentials *credentials.Credentials
	// TestOpen: after a success with Credentials, see whether the proxy lets a
	// probe without them through as well.
	TestOpen bool
}

// Prober probes. It is safe for concurrent use and holds nothing of one probe.
type Prober struct {
	roots *x509.CertPool
	dial  func(ctx context.Context, deadline time.Time, addr string) (net.Conn, error)
}

// New returns a Prober that trusts the targets whose certificates chain to
// roots; nil means the system's.
func New(roots *x509.CertPool) *Prober {
	return &Prober{roots: roots, dial: dialTCP}
}

func dialTCP(ctx context.Context, deadline time.Time, addr string) (net.Conn, error) {
	d := dialer(deadline)
	return d.DialContext(ctx, "tcp", addr)
}

// dialer tries the addresses of a name in both families (RFC 8305), so that one
// that leads nowhere does not cost the whole time. Keep-alive packets are for
// connections that outlive a probe.
func dialer(deadline time.Time) net.Dialer {
	return net.Dialer{Deadline: deadline, KeepAlive: -1}
}

// attempt is the state of one probe on its way through the stages.
type attempt struct {
	prober   *Prober
	req      Request
	target   target
	direct   bool   // without the proxy
	auth     string // value of Proxy-Authorization, "" for none
	nonce    string // that the echo endpoint must return, "" without one
	start    time.Time
	deadline time.Time
	cut      func() bool // stops watching the context

	raw      net.Conn      // to the proxy
	conn     net.Conn      // raw, or what was built on it
	br       *bufio.Reader // of the answer, once there is one
	response *http.Response
	seen     echo.Seen // by the echo endpoint
}

// forwarded reports whether the proxy reads the request and passes it on, which
// in a tunnel it cannot.
func (a *attempt) forwarded() bool { return !a.target.tunnel && !a.direct }

// heldUp is how long after the deadline a failure still counts. The deadline ends
// every stage, so that one which ends much later says that this process was not
// running, as when its machine was suspended, and nothing about the proxy.
const heldUp = 5 * time.Second

// stage is one step: how to run it, and what its failures are called when
// they have no name of their own.
type stage struct {
	name            Stage
	run             func(context.Context) error
	timeout, broken Reason
}

// stages returns the steps of this attempt. A new kind of check is one more
// entry.
func (a *attempt) stages() []stage {
	steps := append(make([]stage, 0, StageCount), stage{StageDial, a.dial, ReasonDialTimeout, ReasonDialFailed})
	if !a.direct && a.req.Scheme == v1alpha1.SchemeHTTPS {
		steps = append(steps, stage{StageProxyTLS, a.secureProxy, ReasonProxyTLSTimeout, ReasonProxyTLSFailed})
	}
	if !a.direct && a.target.tunnel {
		steps = append(steps, stage{StageConnect, a.connect, ReasonConnectTimeout, ReasonConnectFailed})
	}
	if a.target.tunnel {
		steps = append(steps, stage{StageTLS, a.handshake, ReasonTLSTimeout, ReasonTLSHandshakeFailed})
	}
	return append(steps,
		stage{StageHTTP, a.exchange, ReasonResponseTimeout, ReasonResponseFailed},
		stage{StageBody, a.readBody, ReasonResponseTimeout, ReasonResponseIncomplete})
}

// Probe makes one probe and returns within the health check's timeout, or as
// soon as ctx ends.
func (p *Prober) Probe(ctx context.Context, req Request) Result {
	a, failed := p.begin(req)
	if a == nil {
		return failed
	}
	r := a.run(ctx)
	if r.Outcome == Success && req.TestOpen && a.auth != "" {
		p.testOpen(ctx, a, &r)
	}
	return r
}

// Direct makes the same request without the proxy. It is a check of the target:
// what the proxy's own failures are called does not occur.
func (p *Prober) Direct(ctx context.Context, hc v1alpha1.HealthCheck) Result {
	a, failed := p.begin(Request{HealthCheck: hc})
	if a == nil {
		return failed
	}
	a.direct = true
	return a.run(ctx)
}

// begin reads the request. Without an attempt the result says why there is none.
func (p *Prober) begin(req Request) (*attempt, Result) {
	start := time.Now()
	a := &attempt{prober: p, req: req, deadline: start.Add(req.HealthCheck.Timeout.Duration), start: start}
	var err error
	if a.target, err = a.readURL(); err != nil {
		return nil, SetupResult(start, Failure, ReasonProbeURLInvalid, err.Error())
	}
	if a.auth, err = authorization(req.Credentials); err != nil {
		return nil, SetupResult(start, Failure, ReasonCredentialsRefused, err.Error())
	}
	return a, Result{}
}

// readURL takes the probe URL apart, with a nonce of its own where it is an echo
// endpoint's.
func (a *attempt) readURL() (target, error) {
	hc := &a.req.HealthCheck
	if hc.ExitProof == nil {
		return parseTarget(hc.ProbeURL)
	}
	a.nonce = newNonce()
	url, err := echo.WithNonce(hc.ProbeURL, a.nonce)
	if err != nil {
		return target{}, errors.New("probeURL is " + err.Error())
	}
	return parseTarget(url)
}

// run goes through the stages one after the other until one fails, and closes
// the connection.
func (a *attempt) run(ctx context.Context) Result {
	defer a.close()
	r := Result{Outcome: Success, Reason: ReasonProbeSucceeded, Start: a.start, Target: a.target.authority}
	begun := a.start
	for _, s := range a.stages() {
		err := s.run(ctx)
		now := time.Now()
		r.Stage, r.Stages[s.name] = s.name, now.Sub(begun)
		begun = now
		if err != nil {
			r.Outcome, r.Reason, r.Message = classify(ctx, s, err)
			if r.Outcome == Failure && now.Sub(a.deadline) > heldUp {
				r.Outcome, r.Reason, r.Message = Inconclusive, ReasonProberFault, message(s.name, "the prober stood still until long after the timeout")
			}
			break
		}
	}
	r.Latency = begun.Sub(a.start)
	r.Exit = a.seen.Exit
	if a.response != nil {
		r.HTTPStatus = a.response.StatusCode
	}
	if r.Outcome == Success {
		r.Message = a.praise()
	}
	return r
}

// praise says what a success has shown.
func (a *attempt) praise() string {
	way := " through the proxy"
	if a.direct {
		way = " without a proxy"
	}
	text := a.target.host + " answered " + strconv.Itoa(a.response.StatusCode) + way
	if len(a.seen.Leaks) > 0 {
		text += ", which adds " + strings.Join(a.seen.Leaks, ", ")
	}
	return text
}

func (a *attempt) dial(ctx context.Context) error {
	addr := a.target.authority
	if !a.direct {
		addr = net.JoinHostPort(a.req.Host, strconv.Itoa(int(a.req.Port)))
	}
	conn, err := a.prober.dial(ctx, a.deadline, addr)
	if err != nil {
		return err
	}
	a.raw, a.conn = conn, conn
	// The one deadline of the probe. Nothing sets another, except that the end
	// of ctx moves it into the past.
	if err := conn.SetDeadline(a.deadline); err != nil {
		return err
	}
	a.cut = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return nil
}

// close ends the connection without ceremony: a goodbye could stall.
func (a *attempt) close() {
	if a.cut != nil {
		a.cut()
	}
	if a.raw != nil {
		_ = a.raw.Close()
	}
}
