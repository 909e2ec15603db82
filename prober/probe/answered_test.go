package probe

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Each reason is either an answer or none: a new one must be decided.
func TestEveryReasonIsAnsweredOrNot(t *testing.T) {
	for _, r := range reasons(t) {
		assert.Contains(t, answered, r)
	}
	assert.Len(t, answered, len(reasons(t)))
	assert.False(t, Reason("NeverHeard").Answered(), "an unknown reason proves nothing")
}

// A reset is an answer. What the kernel or a router reports is none.
func TestAnsweredDials(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{
		syscall.ECONNREFUSED: true, syscall.ECONNRESET: true,
		syscall.EHOSTUNREACH: false, syscall.ENETUNREACH: false, syscall.EHOSTDOWN: false, syscall.ENETDOWN: false,
		syscall.EPERM: false, syscall.EACCES: false, syscall.ETIMEDOUT: false,
	} {
		prober := New(nil)
		prober.dial = func(context.Context, time.Time, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
		}
		r := prober.Probe(t.Context(), request(nothing(), patient))
		assert.Equal(t, Failure, r.Outcome, errno.Error())
		assert.Equal(t, want, r.Reason.Answered(), "%s: %s", errno, r.Reason)
	}
}

// A route that breaks after the dial is no answer either.
func TestRouteLostInMidProbeIsNoAnswer(t *testing.T) {
	for errno, want := range map[syscall.Errno]Reason{
		syscall.EHOSTUNREACH: ReasonProxyUnreachable, syscall.ENETUNREACH: ReasonProxyUnreachable,
		syscall.ECONNRESET: ReasonConnectFailed, syscall.EPIPE: ReasonConnectFailed, syscall.ETIMEDOUT: ReasonConnectTimeout,
	} {
		prober := New(nil)
		prober.dial = func(context.Context, time.Time, string) (net.Conn, error) {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = far.Close() })
			return brokenConn{near, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", errno)}}, nil
		}
		assert.Equal(t, want, prober.Probe(t.Context(), request(nothing(), patient)).Reason, errno.Error())
	}
}

// brokenConn accepts writes, and fails to read.
type brokenConn struct {
	net.Conn
	err error
}

func (c brokenConn) Read([]byte) (int, error)    { return 0, c.err }
func (c brokenConn) Write(b []byte) (int, error) { return len(b), nil }
