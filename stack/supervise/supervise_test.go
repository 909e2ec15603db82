package supervise

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPart starts and watches a shell script. Its exits are sent to the channel.
func newPart(t *testing.T, script string) (*Part, <-chan error) {
	t.Helper()
	exits := make(chan error, 10)
	p := &Part{Group: NewGroup(), Ended: func(err error) { exits <- err }, Command: process.Command{
		Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, LogFile: filepath.Join(t.TempDir(), "log"),
	}}
	require.NoError(t, p.Start())
	p.Watch()
	t.Cleanup(func() {
		select {
		case <-p.Group.Quiet():
		default:
			p.Group.Close()
		}
		assert.NoError(t, p.Current().Stop(0))
	})
	return p, exits
}

func TestUnexpectedExitIsReported(t *testing.T) {
	for script, want := range map[string]string{"echo no luck; exit 3": "exit status 3", "echo no luck": "exited with status 0"} {
		p, exits := newPart(t, script)
		err := <-exits
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "no luck")
		assert.Equal(t, err, p.Exited())
	}
}

func TestKilledProgramIsRestarted(t *testing.T) {
	p, exits := newPart(t, "exec sleep 300")
	before := p.Current().PID()
	require.NoError(t, p.Exited())
	require.ErrorIs(t, p.Start(), ErrRuns)
	require.NoError(t, p.Kill())
	require.NoError(t, p.Kill(), "it is idempotent")
	require.ErrorContains(t, p.Exited(), "killed")
	require.NoError(t, p.Start())
	p.Watch()
	assert.NotEqual(t, before, p.Current().PID())
	assert.Empty(t, exits, "the exit was expected")
}

func TestExitAfterCloseIsNotReported(t *testing.T) {
	p, exits := newPart(t, "exec sleep 300")
	p.Group.Close()
	require.NoError(t, p.Current().Stop(0))
	assert.Empty(t, exits)
}

func TestUntil(t *testing.T) {
	calls := 0
	require.NoError(t, Until(t.Context(), 1, nil, func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	}))
	assert.Equal(t, 3, calls)
}

func TestUntilReturnsTheLastErrorThatIsNotTheContexts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	last := errors.New("pod a is left")
	calls := 0
	assert.Equal(t, last, Until(ctx, 1, nil, func(ctx context.Context) error {
		if calls++; calls == 1 {
			return last
		}
		cancel()
		return ctx.Err()
	}))
}

func TestUntilEndsWithAFailure(t *testing.T) {
	failure := errors.New("the program exited")
	err := Until(t.Context(), time.Hour, func() error { return failure }, func(context.Context) error { return errors.New("not yet") })
	assert.Equal(t, failure, err)
}
