package probe

import (
	"net/netip"
	"time"
)

// Outcome is what a probe means for the verdict.
type Outcome uint8

const (
	// Inconclusive: the probe shows nothing about the proxy, and counts neither as a
	// success nor as a failure.
	Inconclusive Outcome = iota
	// Success: a new request through the proxy works.
	Success
	// Failure: it does not work.
	Failure
)

// String returns the outcome as a label of metrics.
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case Failure:
		return "failure"
	}
	return "inconclusive"
}

// Stage is a step of a probe. Stages run in this order. Proxies with scheme http skip
// StageProxyTLS, probes of http URLs skip StageConnect and StageTLS.
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

// String returns the name of the stage in messages and metrics.
func (s Stage) String() string {
	names := [StageCount]string{"setup", "dial", "proxy_tls", "connect", "tls", "http", "body"}
	if s >= StageCount {
		return "unknown"
	}
	return names[s]
}

// Reason is a stable CamelCase word for the result of a probe. It appears in
// ProxyProbe.status.reason, in the Healthy condition and in metrics.
type Reason string

const (
	// ReasonProbeSucceeded: every stage worked.
	ReasonProbeSucceeded Reason = "ProbeSucceeded"

	// ReasonProbeURLInvalid: the probe URL of the healthCheck is invalid.
	ReasonProbeURLInvalid Reason = "ProbeURLInvalid"
	// ReasonCredentialsRefused: the Secret of credentialsRef is missing, unlabelled,
	// incomplete or unusable.
	ReasonCredentialsRefused Reason = "CredentialsRefused"
	// ReasonCredentialsForbidden: the prober's Role does not let it get that Secret.
	ReasonCredentialsForbidden Reason = "CredentialsForbidden"

	// ReasonProxyNotResolved: DNS has no address for the name of the proxy.
	ReasonProxyNotResolved Reason = "ProxyNotResolved"
	// ReasonDialFailed: no TCP connection to the proxy, such as connection refused.
	ReasonDialFailed Reason = "DialFailed"
	// ReasonDialTimeout: the TCP connect timed out.
	ReasonDialTimeout Reason = "DialTimeout"

	// ReasonProxyTLSUntrusted: the certificate of the proxy itself is not signed by a
	// trusted authority, is for another name, has expired or is not valid yet.
	ReasonProxyTLSUntrusted Reason = "ProxyTLSUntrusted"
	// ReasonProxyTLSFailed: the proxy does not speak TLS although its scheme is https,
	// or closed the connection.
	ReasonProxyTLSFailed Reason = "ProxyTLSFailed"
	// ReasonProxyTLSTimeout: the TLS handshake with the proxy timed out.
	ReasonProxyTLSTimeout Reason = "ProxyTLSTimeout"

	// ReasonProxyAuthRefused: the proxy answered 407 or 401: credentials are missing or
	// wrong.
	ReasonProxyAuthRefused Reason = "ProxyAuthRefused"
	// ReasonConnectRefused: the proxy answered 403, 429 or 451 to CONNECT: its policy
	// denies the prober or the target.
	ReasonConnectRefused Reason = "ConnectRefused"
	// ReasonUpstreamFailed: the proxy answered 502, 503 or 504 to CONNECT: it could
	// not reach the target.
	ReasonUpstreamFailed Reason = "UpstreamFailed"
	// ReasonConnectFailed: the proxy closed or reset the connection during CONNECT, or
	// its answer was junk or an unexpected status.
	ReasonConnectFailed Reason = "ConnectFailed"
	// ReasonConnectTimeout: the response to CONNECT timed out.
	ReasonConnectTimeout Reason = "ConnectTimeout"

	// ReasonTLSUntrusted: the target's certificate is not signed by a trusted
	// authority. The usual cause is a proxy that intercepts TLS.
	ReasonTLSUntrusted Reason = "TLSUntrusted"
	// ReasonTLSNameMismatch: the certificate is for another name than the target's.
	ReasonTLSNameMismatch Reason = "TLSNameMismatch"
	// ReasonTLSExpired: the certificate has expired or is not valid yet.
	ReasonTLSExpired Reason = "TLSExpired"
	// ReasonTLSHandshakeFailed: the data in the tunnel is not TLS, or the tunnel was closed.
	ReasonTLSHandshakeFailed Reason = "TLSHandshakeFailed"
	// ReasonTLSTimeout: the TLS handshake with the target timed out.
	ReasonTLSTimeout Reason = "TLSTimeout"

	// ReasonUnexpectedStatus: the HTTP status is none of expectedStatusCodes.
	// Redirects are not followed.
	ReasonUnexpectedStatus Reason = "UnexpectedStatus"
	// ReasonResponseFailed: the connection was closed before the headers were complete,
	// or they were malformed or too long.
	ReasonResponseFailed Reason = "ResponseFailed"
	// ReasonResponseIncomplete: the connection was closed in the middle of the body.
	ReasonResponseIncomplete Reason = "ResponseIncomplete"
	// ReasonResponseTimeout: headers or body timed out.
	ReasonResponseTimeout Reason = "ResponseTimeout"

	// ReasonWrongContent: the body is not the echo endpoint's response to this probe:
	// the proxy answers itself, serves from a cache, or connects elsewhere.
	ReasonWrongContent Reason = "WrongContent"
	// ReasonHeaderLeak: the proxy adds headers that identify its client, and
	// exitProof.onHeaderLeak is Fail.
	ReasonHeaderLeak Reason = "HeaderLeak"
	// ReasonOpenProxy: the proxy accepts requests without credentials.
	ReasonOpenProxy Reason = "OpenProxy"

	// ReasonTargetRefused: the target answered 401, 403, 429 or 451 through a tunnel:
	// the proxy works, and the target blocks its address. The outcome is Inconclusive.
	ReasonTargetRefused Reason = "TargetRefused"
	// ReasonProbeTargetDown: the target is down, or much of the fleet fails at once: the
	// failure is suppressed. The outcome is Inconclusive.
	ReasonProbeTargetDown Reason = "ProbeTargetDown"
	// ReasonResolverFailed: the prober's name server timed out or failed. The outcome is
	// Inconclusive.
	ReasonResolverFailed Reason = "ResolverFailed"
	// ReasonCredentialsUnavailable: the API server did not return the Secret. The outcome
	// is Inconclusive.
	ReasonCredentialsUnavailable Reason = "CredentialsUnavailable"
	// ReasonProberFault: this machine had no file descriptors, ports or memory left for
	// the probe, or was suspended. The outcome is Inconclusive.
	ReasonProberFault Reason = "ProberFault"
	// ReasonCanceled: the probe was canceled because its proxy changed or the prober
	// shuts down. The outcome is Inconclusive.
	ReasonCanceled Reason = "Canceled"
)

// Far reports whether the target may have caused a failure with this reason, although
// the proxy works. A direct check of the target decides.
func (r Reason) Far() bool {
	switch r {
	case ReasonUpstreamFailed, ReasonConnectFailed, ReasonConnectTimeout,
		ReasonTLSUntrusted, ReasonTLSNameMismatch, ReasonTLSExpired, ReasonTLSHandshakeFailed, ReasonTLSTimeout,
		ReasonUnexpectedStatus, ReasonResponseFailed, ReasonResponseIncomplete, ReasonResponseTimeout, ReasonWrongContent:
		return true
	}
	return false
}

// Result is the result of one probe. It contains no secrets and no text from the proxy
// or the target.
type Result struct {
	// Outcome of the probe.
	Outcome Outcome
	// Stage that failed, or the last one of a success.
	Stage Stage
	// Reason is for programs.
	Reason Reason
	// Message is for people: one line that starts with the stage that failed.
	Message string
	// Target is host:port of the probe URL, "" when that could not be parsed.
	Target string
	// HTTPStatus of the target's response, 0 without one.
	HTTPStatus int
	// Start of the probe.
	Start time.Time
	// Latency is the time from the dial to the end of the body or to the failure.
	Latency time.Duration
	// Stages are the durations of the stages, 0 for those that did not run.
	Stages [StageCount]time.Duration
	// Exit is the address that the echo endpoint saw, invalid without one.
	Exit netip.Addr
	// OpenTested: the open-proxy test was made, with a result.
	OpenTested bool
}

// SetupResult is the result of a probe that ended before the dial.
func SetupResult(start time.Time, outcome Outcome, reason Reason, text string) Result {
	return Result{Outcome: outcome, Stage: StageSetup, Reason: reason, Message: message(StageSetup, text), Start: start}
}

func message(s Stage, text string) string { return s.String() + ": " + text }
