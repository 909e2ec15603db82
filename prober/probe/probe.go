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
	"net"
	"net/http"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

// Request says what to probe and how.
type Request struct {
	// Host and Port of the proxy. Host is an address or a name.
	Host string
	Port int32
	// HealthCheck with every field set, as OrDefault returns it.
	HealthCheck v1alpha1.HealthCheck
	// Credentials for the proxy; nil sends none.
	Credentials *credentials.Credentials
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
	// Keep-alive packets are for connections that outlive a probe.
	d := net.Dialer{Deadline: deadline, KeepAlive: -1}
	return d.DialContext(ctx, "tcp", addr)
}

// attempt is the state of one probe on its way through the stages.
type attempt struct {
	prober   *Prober
	req      Request
	target   target
	auth     string // value of Proxy-Authorization, "" for none
	deadline time.Time
	cut      func() bool // stops watching the context

	raw      net.Conn      // to the proxy
	conn     net.Conn      // raw, or what was built on it
	br       *bufio.Reader // of the answer, once there is one
	response *http.Response
}

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
	dial := stage{StageDial, a.dialProxy, ReasonDialTimeout, ReasonDialFailed}
	request := stage{StageHTTP, a.exchange, ReasonResponseTimeout, ReasonResponseFailed}
	body := stage{StageBody, a.readBody, ReasonResponseTimeout, ReasonResponseIncomplete}
	if !a.target.tunnel {
		return []stage{dial, request, body}
	}
	tunnel := stage{StageConnect, a.connect, ReasonConnectTimeout, ReasonConnectFailed}
	secure := stage{StageTLS, a.handshake, ReasonTLSTimeout, ReasonTLSHandshakeFailed}
	return []stage{dial, tunnel, secure, request, body}
}

// Probe makes one probe and returns within the health check's timeout, or as
// soon as ctx ends.
func (p *Prober) Probe(ctx context.Context, req Request) Result {
	start := time.Now()
	t, err := parseTarget(req.HealthCheck.ProbeURL)
	if err != nil {
		return SetupResult(start, Failure, ReasonProbeURLInvalid, err.Error())
	}
	auth, err := authorization(req.Credentials)
	if err != nil {
		return SetupResult(start, Failure, ReasonCredentialsRefused, err.Error())
	}
	a := &attempt{prober: p, req: req, target: t, auth: auth, deadline: start.Add(req.HealthCheck.Timeout.Duration)}
	defer a.close()
	return a.through(ctx, start)
}

// through runs the stages one after the other until one fails.
func (a *attempt) through(ctx context.Context, start time.Time) Result {
	r := Result{Outcome: Success, Reason: ReasonProbeSucceeded, Start: start}
	begun := start
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
	r.Latency = begun.Sub(start)
	if a.response != nil {
		r.HTTPStatus = a.response.StatusCode
	}
	if r.Outcome == Success {
		r.Message = a.target.host + " answered " + strconv.Itoa(r.HTTPStatus) + " through the proxy"
	}
	return r
}

func (a *attempt) dialProxy(ctx context.Context) error {
	addr := net.JoinHostPort(a.req.Host, strconv.Itoa(int(a.req.Port)))
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
