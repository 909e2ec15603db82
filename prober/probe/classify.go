package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
)

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
	return Failure, s.broken, message(s.name, describe(err))
}

func outcomeOf(r Reason) Outcome {
	if r == ReasonProberFault || r == ReasonTargetRefused {
		return Inconclusive
	}
	return Failure
}

// proberFault reports whether this machine ran out of a resource.
func proberFault(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
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
		return "the data from the tunnel is not TLS"
	case errors.As(err, &alert):
		return "the peer ended the handshake: " + alert.Error()
	case errors.Is(err, io.EOF):
		return "the connection was closed without a response"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed in the middle of the response"
	}
	return "the response is malformed"
}
