package probe

import (
	"net/netip"
	"time"
)

// Outcome says what a probe means for the verdict.
type Outcome uint8

const (
	// Inconclusive: the probe could not be made for reasons of our own. It counts
	// neither for nor against the proxy.
	Inconclusive Outcome = iota
	// Success: a stranger's request through the proxy works.
	Success
	// Failure: it does not.
	Failure
)

// String returns the outcome as metrics label it.
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case Failure:
		return "failure"
	}
	return "inconclusive"
}

// Stage is a step of a probe. Stages run in this order; proxies without TLS of
// their own skip StageProxyTLS, probes of http URLs StageConnect and StageTLS.
type Stage uint8

const (
	// StageSetup: the probe URL is read and the credentials are fetched.
	StageSetup Stage = iota
	// StageDial: TCP to the proxy.
	StageDial
	// StageProxyTLS: TLS with the proxy itself, certificate verified.
	StageProxyTLS
	// StageConnect: CONNECT to the proxy, answered by 2xx.
	StageConnect
	// StageTLS: TLS with the target, certificate verified.
	StageTLS
	// StageHTTP: the request is sent and the status line and headers read.
	StageHTTP
	// StageBody: the body is read, up to a bound.
	StageBody
	// StageCount is how many stages there are.
	StageCount
)

// String returns the stage as messages and metrics call it.
func (s Stage) String() string {
	names := [StageCount]string{"setup", "dial", "proxy_tls", "connect", "tls", "http", "body"}
	if s >= StageCount {
		return "unknown"
	}
	return names[s]
}

// Reason is a stable CamelCase word for what came of a probe. It ends up in
// ProxyProbe.status.reason, in the Healthy condition and in metrics.
type Reason string

const (
	// ReasonProbeSucceeded: every stage worked.
	ReasonProbeSucceeded Reason = "ProbeSucceeded"

	// ReasonProbeURLInvalid: the probe URL of the healthCheck cannot be fetched by
	// anybody.
	ReasonProbeURLInvalid Reason = "ProbeURLInvalid"
	// ReasonCredentialsRefused: the Secret of credentialsRef is missing, unlabelled,
	// incomplete or unusable.
	ReasonCredentialsRefused Reason = "CredentialsRefused"
	// ReasonCredentialsForbidden: the prober's Role does not let it get that Secret.
	ReasonCredentialsForbidden Reason = "CredentialsForbidden"

	// ReasonProxyNotResolved: the name server says that the name of the proxy has no
	// address.
	ReasonProxyNotResolved Reason = "ProxyNotResolved"
	// ReasonDialFailed: no TCP connection to the proxy, such as connection refused.
	ReasonDialFailed Reason = "DialFailed"
	// ReasonDialTimeout: no answer to the TCP connect in time.
	ReasonDialTimeout Reason = "DialTimeout"

	// ReasonProxyTLSUntrusted: the certificate of the proxy itself is not signed by
	// an authority that we trust, is for another name, or out of its dates.
	ReasonProxyTLSUntrusted Reason = "ProxyTLSUntrusted"
	// ReasonProxyTLSFailed: the proxy spoke no TLS although its scheme is https, or
	// broke off.
	ReasonProxyTLSFailed Reason = "ProxyTLSFailed"
	// ReasonProxyTLSTimeout: the TLS handshake with the proxy was not complete in
	// time.
	ReasonProxyTLSTimeout Reason = "ProxyTLSTimeout"

	// ReasonProxyAuthRefused: the proxy answered 407 or 401: it wants credentials, or
	// others than it got.
	ReasonProxyAuthRefused Reason = "ProxyAuthRefused"
	// ReasonConnectRefused: the proxy answered 403, 429 or 451 to CONNECT: its policy
	// denies us or the target.
	ReasonConnectRefused Reason = "ConnectRefused"
	// ReasonUpstreamFailed: the proxy answered 502, 503 or 504 to CONNECT: it could
	// not reach the target.
	ReasonUpstreamFailed Reason = "UpstreamFailed"
	// ReasonConnectFailed: the proxy closed or reset the connection during CONNECT, or
	// its answer was junk or an unexpected status.
	ReasonConnectFailed Reason = "ConnectFailed"
	// ReasonConnectTimeout: no complete answer to CONNECT in time.
	ReasonConnectTimeout Reason = "ConnectTimeout"

	// ReasonTLSUntrusted: the target's certificate is not signed by an authority
	// that we trust. The usual cause is a proxy that intercepts TLS.
	ReasonTLSUntrusted Reason = "TLSUntrusted"
	// ReasonTLSNameMismatch: the certificate is for another name than the target's.
	ReasonTLSNameMismatch Reason = "TLSNameMismatch"
	// ReasonTLSExpired: the certificate has expired or is not valid yet.
	ReasonTLSExpired Reason = "TLSExpired"
	// ReasonTLSHandshakeFailed: no TLS was spoken through the tunnel, or it broke off.
	ReasonTLSHandshakeFailed Reason = "TLSHandshakeFailed"
	// ReasonTLSTimeout: the TLS handshake was not complete in time.
	ReasonTLSTimeout Reason = "TLSTimeout"

	// ReasonUnexpectedStatus: the HTTP status is none of expectedStatusCodes.
	// Redirects are not followed.
	ReasonUnexpectedStatus Reason = "UnexpectedStatus"
	// ReasonResponseFailed: the connection broke before the headers were complete, or
	// they were junk or too long.
	ReasonResponseFailed Reason = "ResponseFailed"
	// ReasonResponseIncomplete: the body broke off before its announced end.
	ReasonResponseIncomplete Reason = "ResponseIncomplete"
	// ReasonResponseTimeout: headers or body were not complete in time.
	ReasonResponseTimeout Reason = "ResponseTimeout"

	// ReasonWrongContent: what came is not the echo endpoint's answer to this probe:
	// the proxy answers itself, from a cache, or connects elsewhere.
	ReasonWrongContent Reason = "WrongContent"
	// ReasonHeaderLeak: the proxy adds headers that give its client away, and
	// exitProof.onHeaderLeak is Fail.
	ReasonHeaderLeak Reason = "HeaderLeak"
	// ReasonOpenProxy: the proxy let a probe without credentials through.
	ReasonOpenProxy Reason = "OpenProxy"

	// ReasonTargetRefused: the target answered 401, 403, 429 or 451 through a tunnel:
	// the proxy works, and the target does not want its address. The outcome is
	// Inconclusive.
	ReasonTargetRefused Reason = "TargetRefused"
	// ReasonProbeTargetDown: the probe failed as it would through any proxy: the
	// target is down, or much of the fleet fails at once. The outcome is
	// Inconclusive.
	ReasonProbeTargetDown Reason = "ProbeTargetDown"
	// ReasonResolverFailed: the prober's name server did not answer, or failed. The
	// outcome is Inconclusive.
	ReasonResolverFailed Reason = "ResolverFailed"
	// ReasonCredentialsUnavailable: the Secret could not be read just now. The
	// outcome is Inconclusive.
	ReasonCredentialsUnavailable Reason = "CredentialsUnavailable"
	// ReasonProberFault: this machine had no file descriptors, ports or memory left
	// for the probe, or stood still meanwhile. The outcome is Inconclusive.
	ReasonProberFault Reason = "ProberFault"
	// ReasonCanceled: the probe was cut off because its proxy changed or the prober
	// ends. The outcome is Inconclusive.
	ReasonCanceled Reason = "Canceled"
)

// Far reports whether a failure for this reason may be the target's doing, as
// seen through a proxy that works. Whether it is, a check without the proxy can
// tell.
func (r Reason) Far() bool {
	switch r {
	case ReasonUpstreamFailed, ReasonConnectFailed, ReasonConnectTimeout,
		ReasonTLSUntrusted, ReasonTLSNameMismatch, ReasonTLSExpired, ReasonTLSHandshakeFailed, ReasonTLSTimeout,
		ReasonUnexpectedStatus, ReasonResponseFailed, ReasonResponseIncomplete, ReasonResponseTimeout, ReasonWrongContent:
		return true
	}
	return false
}

// Result is what came of one probe. It holds no secrets and no text that came
// from the proxy or the target.
type Result struct {
	// Outcome of the probe.
	Outcome Outcome
	// Stage that failed, or the last one of a success.
	Stage Stage
	// Reason for machines.
	Reason Reason
	// Message for people: one line that starts with the stage that failed.
	Message string
	// Target is host:port of the probe URL, "" when it did not come to that.
	Target string
	// HTTPStatus is the target's answer, 0 when it did not come to that.
	HTTPStatus int
	// Start of the probe.
	Start time.Time
	// Latency is the wall time from the dial to the end of the body or to the
	// failure.
	Latency time.Duration
	// Stages are the times that the stages took, 0 for those that did not
	// run.
	Stages [StageCount]time.Duration
	// Exit is the address that the echo endpoint saw, invalid without one.
	Exit netip.Addr
	// OpenTested: the probe was also made without credentials, with a result.
	OpenTested bool
}

// SetupResult is the result of a probe that ended before the proxy was dialled.
func SetupResult(start time.Time, outcome Outcome, reason Reason, text string) Result {
	return Result{Outcome: outcome, Stage: StageSetup, Reason: reason, Message: message(StageSetup, text), Start: start}
}

func message(s Stage, text string) string { return s.String() + ": " + text }
