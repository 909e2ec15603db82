package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// nothing is the address of a proxy that must not be dialled.
func nothing() *probetest.Proxy {
	return &probetest.Proxy{Server: &probetest.Server{Addr: "192.0.2.1:3128"}}
}

// A prober that has run out of something must not take that for the fleet's
// fault.
func TestResourceExhaustionIsInconclusive(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		prober := New(nil)
		prober.dial = func(context.Context, time.Time, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", errno)}
		}
		r := prober.Probe(t.Context(), request(nothing(), patient))
		assert.Equal(t, Inconclusive, r.Outcome)
		assert.Equal(t, ReasonProberFault, r.Reason)
		assert.Equal(t, "dial: "+errno.Error(), r.Message)
	}
}

func TestClassifyDials(t *testing.T) {
	for _, tc := range []struct {
		err    error
		reason Reason
	}{
		{syscall.ECONNREFUSED, ReasonDialFailed},
		{syscall.EHOSTUNREACH, ReasonDialFailed},
		{syscall.ENETUNREACH, ReasonDialFailed},
		{syscall.ETIMEDOUT, ReasonDialTimeout},
		{os.ErrDeadlineExceeded, ReasonDialTimeout},
		{context.DeadlineExceeded, ReasonDialTimeout},
		{&net.DNSError{IsNotFound: true}, ReasonProxyNotResolved},
		{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, ReasonResolverFailed},
		{&net.DNSError{IsTimeout: true}, ReasonResolverFailed},
		{errors.New("something else"), ReasonDialFailed},
	} {
		prober := New(nil)
		prober.dial = func(context.Context, time.Time, string) (net.Conn, error) {
			return nil, fmt.Errorf("dial: %w", tc.err)
		}
		r := prober.Probe(t.Context(), request(nothing(), patient))
		assert.Equal(t, tc.reason == ReasonResolverFailed, r.Outcome == Inconclusive, "what the resolver lacks is not the proxy's fault")
		assert.Equal(t, tc.reason, r.Reason, tc.err.Error())
		assert.NotContains(t, r.Message, "something else", "unknown errors are not repeated")
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for s := range StageCount + 1 {
		require.NotEmpty(t, s.String())
		require.False(t, seen[s.String()], "two stages called %s", s)
		seen[s.String()] = true
	}
	assert.Equal(t, "success failure inconclusive", fmt.Sprintf("%s %s %s", Success, Failure, Inconclusive))
}

func TestLoadRoots(t *testing.T) {
	ca, dir := probetest.NewCA(t), t.TempDir()
	good, empty := dir+"/ca.pem", dir+"/empty.pem"
	require.NoError(t, os.WriteFile(good, ca.PEM(), 0o600))
	require.NoError(t, os.WriteFile(empty, []byte("no certificate"), 0o600))

	pool, err := LoadRoots(good)
	require.NoError(t, err)
	assert.True(t, pool.Equal(ca.Pool()), "the file's certificates and no others")
	_, err = LoadRoots(empty)
	assert.ErrorContains(t, err, empty+" contains no PEM certificate")
	_, err = LoadRoots(dir + "/missing.pem")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestFailureLongAfterTheDeadlineIsInconclusive: this process stood still, whatever the
// failure looks like when it goes on.
func TestFailureLongAfterTheDeadlineIsInconclusive(t *testing.T) {
	for name, tc := range map[string]struct {
		late    time.Duration
		outcome Outcome
		reason  Reason
	}{
		"in time":    {-time.Hour, Failure, ReasonDialFailed},
		"a bit late": {time.Second, Failure, ReasonDialFailed},
		"long after": {suspendedAfter + time.Minute, Inconclusive, ReasonProberFault},
	} {
		t.Run(name, func(t *testing.T) {
			prober := New(nil)
			prober.dial = func(context.Context, time.Time, string) (net.Conn, error) { return nil, syscall.ECONNRESET }
			r := prober.Probe(t.Context(), request(nothing(), -tc.late)) // its deadline is that far behind
			assert.Equal(t, tc.outcome, r.Outcome, r.Message)
			assert.Equal(t, tc.reason, r.Reason)
		})
	}
}
