package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
)

// refusal is a failure that has a reason and a text of its own.
type refusal struct {
	reason Reason
	text   string
}

// Error returns the text.
func (r refusal) Error() string { return r.text }

// classify names the failure of a stage. The message is built from our own words
// and the kernel's; errors that quote the other side are never repeated,
// because the other side knows the credentials.
func classify(ctx context.Context, s stage, err error) (Outcome, Reason, string) {
	var (
		own refusal
		dns *net.DNSError
	)
	switch {
	case ctx.Err() != nil:
		return Inconclusive, ReasonCanceled, message(s.name, "cut off")
	case errors.As(err, &own):
		return outcomeOf(own.reason), own.reason, message(s.name, own.text)
	case ourFault(err):
		return Inconclusive, ReasonProberFault, message(s.name, describe(err))
	case errors.As(err, &dns) && dns.IsNotFound:
		return Failure, ReasonProxyNotResolved, message(s.name, "the name does not resolve: it has no address")
	case errors.As(err, &dns):
		return Inconclusive, ReasonResolverFailed, message(s.name, "the prober's name server did not answer or failed")
	case isTimeout(err):
		return Failure, s.timeout, message(s.name, "no complete answer within the timeout")
	}
	return Failure, s.broken, message(s.name, describe(err))
}

func outcomeOf(r Reason) Outcome {
	if r == ReasonProberFault || r == ReasonTargetRefused {
		return Inconclusive
	}
	return Failure
}

// ourFault reports whether this machine was short of something.
func ourFault(err error) bool {
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

// describe returns words for err that nobody but us or the kernel has written.
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
		return "what came through the tunnel is not TLS"
	case errors.As(err, &alert):
		return "the other side ended the handshake: " + alert.Error()
	case errors.Is(err, io.EOF):
		return "the connection was closed instead of an answer"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed in the middle of the answer"
	}
	return "the answer could not be understood"
}
