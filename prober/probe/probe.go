// Package probe makes one request through one proxy, as a crawler does, and returns
// its result.
//
// Every probe opens a connection of its own: keep-alive would hide a proxy that
// accepts no new connections. One absolute deadline covers all stages, so that a
// stalled proxy costs exactly the timeout, whatever stage stalls. Only the proxy
// resolves the target's name, and redirects are not followed.
package probe

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
)

// Request is what to probe and how.
type Request struct {
	Host        string // Host and Port of the proxy. Host is an address or a name
	Port        int32
	Scheme      v1alpha1.Scheme          // that the proxy itself speaks; the zero value means http
	HealthCheck v1alpha1.HealthCheck     // with every field set, as OrDefault returns it
	Credentials *credentials.Credentials // for the proxy; nil sends none
	TestOpen    bool                     // after a success with Credentials, test whether the proxy accepts a probe without them too
}

// Prober probes. It is safe for concurrent use and keeps no state of a probe.
type Prober struct {
	roots *x509.CertPool
	dial  func(ctx context.Context, deadline time.Time, addr string) (net.Conn, error)
}

// New returns a Prober that trusts certificates that chain to roots; nil means the
// system's roots.
func New(roots *x509.CertPool) *Prober {
	return &Prober{roots: roots, dial: dialTCP}
}

func dialTCP(ctx context.Context, deadline time.Time, addr string) (net.Conn, error) {
	d := dialer(deadline)
	return d.DialContext(ctx, "tcp", addr)
}

// dialer tries IPv4 and IPv6 addresses of a name in parallel (RFC 8305), so that an
// unreachable one does not use up the timeout. A probe is too short for keep-alive
// packets.
func dialer(deadline time.Time) net.Dialer {
	return net.Dialer{Deadline: deadline, KeepAlive: -1}
}

// attempt is the state of one probe across its stages.
type attempt struct {
	prober   *Prober
	req      Request
	target   probeURL
	direct   bool   // without the proxy
	auth     string // value of Proxy-Authorization, "" for none
	nonce    string // that the echo endpoint must return, "" for none
	start    time.Time
	deadline time.Time
	stop     func() bool // stops the watch of the context

	raw      net.Conn      // to the proxy
	conn     net.Conn      // raw, or what was built on it
	br       *bufio.Reader // of the response, nil before it
	response *http.Response
	seen     echo.Seen // by the echo endpoint
	foreign  bool      // a proxy in front of the target may have marked the response, too
}

// forwarded reports whether the proxy itself reads and forwards the request. In a
// tunnel it cannot read it.
func (a *attempt) forwarded() bool { return !a.target.tunnel && !a.direct }

// suspendedAfter is how long after the deadline a failure still counts. The deadline
// ends every stage: a stage that ends much later means that this process did not run,
// such as on a suspended machine, and nothing about the proxy.
const suspendedAfter = 5 * time.Second

// stage is one step: its function, and the reasons for a timeout and for other
// failures without a reason of their own.
type stage struct {
	name            Stage
	run             func(context.Context) error
	timeout, broken Reason
}

// stages returns the steps of this attempt. A new kind of check is one more element.
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

// Direct makes the same request without a proxy, to check the target. Of the reasons of
// proxy failures only HeaderLeak occurs: for what is in front of the echo endpoint.
func (p *Prober) Direct(ctx context.Context, hc v1alpha1.HealthCheck) Result {
	a, failed := p.begin(Request{HealthCheck: hc})
	if a == nil {
		return failed
	}
	a.direct = true
	return a.run(ctx)
}

// begin parses the request. It returns either an attempt or the result of a failure.
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

// readURL parses the probe URL, and adds a new nonce to the URL of an echo endpoint.
func (a *attempt) readURL() (probeURL, error) {
	hc := &a.req.HealthCheck
	if hc.ExitProof == nil {
		return parseURL(hc.ProbeURL)
	}
	a.nonce = newNonce()
	url, err := echo.WithNonce(hc.ProbeURL, a.nonce)
	if err != nil {
		return probeURL{}, errors.New("probeURL is " + err.Error())
	}
	return parseURL(url)
}

// run runs the stages in order until one fails, then closes the connection.
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
			if r.Outcome == Failure && now.Sub(a.deadline) > suspendedAfter {
				r.Outcome, r.Reason, r.Message = Inconclusive, ReasonProberFault, message(s.name, "the prober was suspended until long after the timeout")
			}
			break
		}
	}
	r.Latency = begun.Sub(a.start)
	r.Exit, r.Forwarded = a.seen.Exit, a.foreign
	if a.response != nil {
		r.HTTPStatus = a.response.StatusCode
	}
	if r.Outcome == Success {
		r.Message = a.successMessage()
	}
	return r
}

// successMessage describes a success.
func (a *attempt) successMessage() string {
	way := " through the proxy"
	if a.direct {
		way = " without a proxy"
	}
	text := a.target.host + " answered " + strconv.Itoa(a.response.StatusCode) + way
	return text + a.additions()
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
	// The only deadline of the probe. The end of ctx moves it into the past.
	if err := conn.SetDeadline(a.deadline); err != nil {
		return err
	}
	a.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return nil
}

// close closes the TCP connection without a TLS close_notify, which could stall.
func (a *attempt) close() {
	if a.stop != nil {
		a.stop()
	}
	if a.raw != nil {
		_ = a.raw.Close()
	}
}
