package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Outcome is what a probe means for the verdict.
type Outcome uint8

const (
	Inconclusive Outcome = iota // the probe shows nothing about the proxy, and counts neither as a success nor as a failure
	// Success: a new request through the proxy works.
	Success
	// Failure: it does not work.
	Failure
)

// String returns the outcome as a label of metrics.
func (o Outcome) String() string { return [...]string{"inconclusive", "success", "failure"}[o] }

// Stage is a step of a probe. Stages run in this order. Proxies with scheme http skip
// StageProxyTLS, probes of http URLs skip StageConnect and StageTLS.
type Stage uint8

const (
	StageSetup    Stage = iota // the probe URL is read and the credentials are fetched
	StageDial                  // TCP to the proxy
	StageProxyTLS              // TLS with the proxy itself, certificate verified
	StageConnect               // CONNECT to the proxy, answered by 2xx
	StageTLS                   // TLS with the target, certificate verified
	StageHTTP                  // the request is sent and the status line and headers read
	StageBody                  // the body is read, up to a bound
	StageCount                 // how many stages there are
)

// String returns the name of the stage in messages and metrics.
func (s Stage) String() string {
	if s >= StageCount {
		return "unknown"
	}
	return stageNames[s]
}

var stageNames = [StageCount]string{"setup", "dial", "proxy_tls", "connect", "tls", "http", "body"}

// Reason is a stable CamelCase word for the result of a probe. It appears in
// ProxyProbe.status.reason, in the Healthy condition and in metrics.
type Reason string

const (
	ReasonProbeSucceeded Reason = "ProbeSucceeded" // every stage worked

	ReasonProbeURLInvalid      Reason = "ProbeURLInvalid"      // the probe URL of the healthCheck is invalid
	ReasonCredentialsRefused   Reason = "CredentialsRefused"   // the Secret of credentialsRef is missing, unlabelled, incomplete or unusable
	ReasonCredentialsForbidden Reason = "CredentialsForbidden" // the prober's Role does not let it get that Secret

	ReasonProxyNotResolved Reason = "ProxyNotResolved" // DNS has no address for the name of the proxy
	ReasonDialFailed       Reason = "DialFailed"       // the proxy's machine refused or reset the TCP connection
	ReasonProxyUnreachable Reason = "ProxyUnreachable" // no route to the proxy, or the prober's machine may not use it
	ReasonDialTimeout      Reason = "DialTimeout"      // the TCP connect timed out

	ReasonProxyTLSUntrusted Reason = "ProxyTLSUntrusted" // the certificate of the proxy itself is not signed by a trusted authority, is for another name, has expired or is not valid yet
	ReasonProxyTLSFailed    Reason = "ProxyTLSFailed"    // the proxy does not speak TLS although its scheme is https, or closed the connection
	ReasonProxyTLSTimeout   Reason = "ProxyTLSTimeout"   // the TLS handshake with the proxy timed out

	ReasonProxyAuthRefused Reason = "ProxyAuthRefused" // the proxy answered 407, or 401 or 403 with a challenge of its own: credentials are missing or wrong
	ReasonConnectRefused   Reason = "ConnectRefused"   // the proxy answered another 4xx: its policy denies the prober or the target
	ReasonUpstreamFailed   Reason = "UpstreamFailed"   // the proxy answered 5xx: it could not reach the target
	ReasonConnectFailed    Reason = "ConnectFailed"    // the proxy closed or reset the connection during CONNECT, or its answer was junk, or one that servers give which are no proxies
	ReasonConnectTimeout   Reason = "ConnectTimeout"   // the response to CONNECT timed out

	ReasonTLSUntrusted       Reason = "TLSUntrusted"       // the target's certificate is not signed by a trusted authority. The usual cause is a proxy that intercepts TLS
	ReasonTLSNameMismatch    Reason = "TLSNameMismatch"    // the certificate is for another name than the target's
	ReasonTLSExpired         Reason = "TLSExpired"         // the certificate has expired or is not valid yet
	ReasonTLSHandshakeFailed Reason = "TLSHandshakeFailed" // the data in the tunnel is not TLS, or the tunnel was closed
	ReasonTLSTimeout         Reason = "TLSTimeout"         // the TLS handshake with the target timed out

	ReasonUnexpectedStatus   Reason = "UnexpectedStatus"   // the HTTP status is none of expectedStatusCodes. Redirects are not followed
	ReasonResponseFailed     Reason = "ResponseFailed"     // the connection was closed before the headers were complete, or they were malformed or too long
	ReasonResponseIncomplete Reason = "ResponseIncomplete" // the connection was closed in the middle of the body
	ReasonResponseTimeout    Reason = "ResponseTimeout"    // headers or body timed out

	ReasonWrongContent Reason = "WrongContent" // the body is not the echo endpoint's response to this probe: the proxy answers itself, serves from a cache, or connects elsewhere
	ReasonHeaderLeak   Reason = "HeaderLeak"   // the proxy adds headers that name it or carry an address, and exitProof.onHeaderLeak is Fail. In a direct check: something in front of the target does
	ReasonOpenProxy    Reason = "OpenProxy"    // the proxy accepts requests without credentials

	// The outcome of these is Inconclusive.
	ReasonTargetRefused          Reason = "TargetRefused"          // the target answered 401, 403, 429 or 451 through a tunnel: the proxy works, and the target blocks its address
	ReasonProbeTargetDown        Reason = "ProbeTargetDown"        // the target is down, or much of the fleet is silent at once: the failure is suppressed
	ReasonResolverFailed         Reason = "ResolverFailed"         // the prober's name server timed out or failed
	ReasonCredentialsUnavailable Reason = "CredentialsUnavailable" // the API server did not return the Secret
	ReasonProberFault            Reason = "ProberFault"            // this machine had no file descriptors, ports or memory left for the probe, lacks the proxy's IP version, or was suspended
	ReasonCanceled               Reason = "Canceled"               // the probe was canceled because its proxy changed or the prober shuts down
)

// Far reports whether the target may have caused a failure with this reason, although
// the proxy works. A direct check of the target decides.
func (r Reason) Far() bool {
	switch r {
	case ReasonUpstreamFailed, ReasonConnectFailed, ReasonConnectTimeout,
		ReasonTLSUntrusted, ReasonTLSNameMismatch, ReasonTLSExpired, ReasonTLSHandshakeFailed, ReasonTLSTimeout,
		ReasonUnexpectedStatus, ReasonResponseFailed, ReasonResponseIncomplete, ReasonResponseTimeout, ReasonWrongContent,
		ReasonHeaderLeak:
		return true
	}
	return false
}

// Far reports whether the target may have caused the failure, as Reason.Far does, or may
// have sent the response that looks like the proxy's.
func (r *Result) Far() bool { return r.Reason.Far() || r.Forwarded }

// Reached reports whether the target itself answered this request for certain. A leak
// comes with the nonce of the request.
func (r *Result) Reached() bool { return r.Outcome == Success || r.Reason == ReasonHeaderLeak }

// Result is the result of one probe. It contains no secrets, and no text from the proxy
// or the target but plain header names.
type Result struct {
	Outcome    Outcome                   // of the probe
	Stage      Stage                     // that failed, or the last one of a success
	Reason     Reason                    // for programs
	Message    string                    // for people: one line that starts with the stage that failed
	Target     string                    // host:port of the probe URL, "" when that could not be parsed
	HTTPStatus int                       // of the target's response, 0 without one
	Start      time.Time                 // of the probe
	Latency    time.Duration             // the time from the dial to the end of the body or to the failure
	Stages     [StageCount]time.Duration // the durations of the stages, 0 for those that did not run
	Forwarded  bool                      // the target may have sent the headers from which Reason was read: the proxy forwards them
	Exit       netip.Addr                // the address that the echo endpoint saw, invalid without one
	OpenTested bool                      // the open-proxy test was made, with a result
}

// SetupResult is the result of a probe that ended before the dial.
func SetupResult(start time.Time, outcome Outcome, reason Reason, text string) Result {
	return Result{Outcome: outcome, Stage: StageSetup, Reason: reason, Message: message(StageSetup, text), Start: start}
}

func message(s Stage, text string) string { return s.String() + ": " + text }

// stageError is a failure of a stage that has a reason and a text of its own.
type stageError struct {
	reason Reason
	text   string
}

// Error returns the text.
func (r stageError) Error() string { return r.text }

// classify returns outcome, reason and message of a failed stage. The message consists
// of texts of this package and of the kernel. Errors that quote the peer are never
// repeated, because the peer knows the credentials.
func classify(ctx context.Context, s stage, err error) (Outcome, Reason, string) {
	var (
		own stageError
		dns *net.DNSError
	)
	switch {
	case ctx.Err() != nil:
		return Inconclusive, ReasonCanceled, message(s.name, "canceled")
	case errors.As(err, &own):
		return outcomeOf(own.reason), own.reason, message(s.name, own.text)
	case proberFault(err):
		return Inconclusive, ReasonProberFault, message(s.name, describe(err))
	case errors.As(err, &dns) && dns.IsNotFound:
		return Failure, ReasonProxyNotResolved, message(s.name, "the name does not resolve: it has no address")
	case errors.As(err, &dns):
		return Inconclusive, ReasonResolverFailed, message(s.name, "the prober's name server did not answer or failed")
	case isTimeout(err):
		return Failure, s.timeout, message(s.name, "no complete response within the timeout")
	}
	if text, ok := unreachable(s.name, err); ok {
		return Failure, ReasonProxyUnreachable, message(s.name, text)
	}
	return Failure, s.broken, message(s.name, describe(err))
}

func outcomeOf(r Reason) Outcome {
	if r == ReasonProberFault || r == ReasonTargetRefused {
		return Inconclusive
	}
	return Failure
}

// proberFault reports whether this machine ran out of a resource, or its kernel
// lacks the IP version of the proxy.
func proberFault(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// describe returns a text for err without anything that the peer sent.
func describe(err error) string {
	var (
		errno syscall.Errno
		alert tls.AlertError
		junk  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, errNotHTTP), errors.Is(err, errTooLong), errors.Is(err, errInterims):
		return err.Error()
	case errors.As(err, &junk):
		return "the data is not TLS"
	case errors.As(err, &alert):
		return "the peer ended the handshake: " + alert.Error()
	case errors.Is(err, io.EOF):
		return "the connection was closed without a response"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed in the middle of the response"
	}
	return "the response is malformed"
}
