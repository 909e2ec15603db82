package probe

import (
	"errors"
	"syscall"
)

// answered has every reason: true when the other side answered, whatever it answered,
// which proves that the prober's own network works. Without an answer the prober's
// network, name server or rights may be the cause as well as the proxy.
var answered = map[Reason]bool{
	ReasonProbeSucceeded: true,
	ReasonTargetRefused:  true,

	// The configuration was read and is wrong: no network is involved.
	ReasonProbeURLInvalid:    true,
	ReasonCredentialsRefused: true,

	ReasonDialFailed:         true, // a reset
	ReasonProxyTLSUntrusted:  true,
	ReasonProxyTLSFailed:     true,
	ReasonProxyAuthRefused:   true,
	ReasonConnectRefused:     true,
	ReasonUpstreamFailed:     true,
	ReasonConnectFailed:      true,
	ReasonTLSUntrusted:       true,
	ReasonTLSNameMismatch:    true,
	ReasonTLSExpired:         true,
	ReasonTLSHandshakeFailed: true,
	ReasonUnexpectedStatus:   true,
	ReasonResponseFailed:     true,
	ReasonResponseIncomplete: true,
	ReasonWrongContent:       true,
	ReasonHeaderLeak:         true,
	ReasonOpenProxy:          true,

	ReasonProxyNotResolved: false, // the prober's name server returned it
	ReasonProxyUnreachable: false,
	ReasonDialTimeout:      false,
	ReasonProxyTLSTimeout:  false,
	ReasonConnectTimeout:   false,
	ReasonTLSTimeout:       false,
	ReasonResponseTimeout:  false,

	ReasonCredentialsForbidden:   false, // the prober lacks a right, crawlers may not
	ReasonCredentialsUnavailable: false,
	ReasonResolverFailed:         false,
	ReasonProberFault:            false,
	ReasonProbeTargetDown:        false,
	ReasonCanceled:               false,
}

// Answered reports whether a result with this reason contains an answer of the other
// side. Failures without one may be the prober's own fault when much of the fleet has
// them at once.
func (r Reason) Answered() bool { return answered[r] }

// unreachable reports whether the kernel, or a router, ended a stage, and how: no packet
// of the peer did.
func unreachable(s Stage, err error) (text string, ok bool) {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return "no connection could be opened", s == StageDial
	}
	switch errno {
	case syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE:
		return "", false
	}
	return errno.Error(), true
}
