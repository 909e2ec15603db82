package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// testContainer is a container whose program runs script; the test moves its
// clock.
func testContainer(t *testing.T, script string) (*container, *clocktesting.FakeClock) {
	t.Helper()
	clk := clocktesting.NewFakeClock(early.Time)
	return &container{
		uid: "1", addr: testAddr, dir: newPodDir(t.TempDir(), "1"), config: script,
		launch:   scripted(t),
		clock:    clk,
		log:      slog.New(slog.DiscardHandler),
		changed:  func() {},
		stopping: make(chan struct{}),
	}, clk
}

func pidOf(t *testing.T, id string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimPrefix(id, containerIDPrefix))
	require.NoError(t, err)
	return pid
}

func awaitRunning(t *testing.T, c *container) int {
	t.Helper()
	within(t, "the process runs", func() bool { return c.snapshot().Current.Running != nil })
	return pidOf(t, c.snapshot().ID)
}

func awaitWaiting(t *testing.T, c *container, clk *clocktesting.FakeClock) containerState {
	t.Helper()
	within(t, "the container waits", func() bool { return c.snapshot().Current.Waiting != nil && clk.HasWaiters() })
	return c.snapshot()
}

func TestContainerIsRestartedAfterTheBackoff(t *testing.T) {
	c, clk := testContainer(t, "echo it broke; exit 3")
	background(t, c.run)

	for i, delay := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		s := awaitWaiting(t, c, clk)
		assert.Equal(t, reasonCrashLoop, s.Current.Waiting.Reason)
		assert.Contains(t, s.Current.Waiting.Message, delay.String())
		assert.Equal(t, int32(i), s.Restarts)
		require.NotNil(t, s.Last.Terminated)
		assert.Equal(t, int32(3), s.Last.Terminated.ExitCode)
		assert.Equal(t, reasonError, s.Last.Terminated.Reason)
		assert.Equal(t, "it broke", s.Last.Terminated.Message)
		assert.Equal(t, s.ID, s.Last.Terminated.ContainerID)

		clk.Step(delay - time.Millisecond)
		require.True(t, clk.HasWaiters(), "too early to restart")
		clk.Step(time.Millisecond)
		within(t, "another process has run", func() bool { return c.snapshot().ID != s.ID })
	}
}

func TestKilledContainerHasExitCode137(t *testing.T) {
	c, clk := testContainer(t, "exec sleep 300")
	background(t, c.run)
	require.NoError(t, syscall.Kill(awaitRunning(t, c), syscall.SIGKILL))

	s := awaitWaiting(t, c, clk)
	assert.Equal(t, int32(137), s.Last.Terminated.ExitCode)
	assert.Equal(t, int32(syscall.SIGKILL), s.Last.Terminated.Signal)
	assert.Equal(t, early, s.Last.Terminated.StartedAt)

	clk.Step(time.Second)
	awaitRunning(t, c)
	assert.Equal(t, int32(1), c.snapshot().Restarts)
}

func TestContainerIsRestartedAfterExitCode0(t *testing.T) {
	c, clk := testContainer(t, "exit 0")
	background(t, c.run)
	s := awaitWaiting(t, c, clk)
	assert.Equal(t, reasonCompleted, s.Last.Terminated.Reason)
	assert.Zero(t, s.Last.Terminated.ExitCode)
}

func TestContainerWhoseProgramIsMissing(t *testing.T) {
	c, clk := testContainer(t, "")
	c.launch = &Launcher{Name: "squid", Path: "/nowhere/squid"}
	background(t, c.run)
	s := awaitWaiting(t, c, clk)
	assert.Equal(t, reasonStartError, s.Current.Waiting.Reason)
	assert.Contains(t, s.Current.Waiting.Message, "/nowhere/squid")
	assert.Empty(t, s.ID)

	clk.Step(time.Second)
	within(t, "it is tried again", clk.HasWaiters)
	assert.Zero(t, c.snapshot().Restarts, "nothing has ever run")
}

func TestStopEndsTheProcess(t *testing.T) {
	for name, script := range map[string]string{
		"at once":                    "exec sleep 300",
		"that ignores SIGTERM":       "trap '' TERM; touch ready; sleep 300; sleep 300",
		"that is stopped by SIGSTOP": "exec sleep 300",
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := testContainer(t, script)
			ended := make(chan struct{})
			background(t, func(ctx context.Context) { c.run(ctx); close(ended) })
			pid := awaitRunning(t, c)
			if strings.Contains(name, "ignores") {
				within(t, "the trap is set", func() bool { _, err := os.Stat(filepath.Join(c.dir.run(), "ready")); return err == nil })
			}
			if strings.Contains(name, "SIGSTOP") {
				require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			}
			c.stop(50 * time.Millisecond)
			c.stop(time.Hour) // only the first counts
			<-ended
			assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		})
	}
}

func TestStopDuringTheRestartBackoff(t *testing.T) {
	c, clk := testContainer(t, "exit 1")
	ended := make(chan struct{})
	background(t, func(ctx context.Context) { c.run(ctx); close(ended) })
	awaitWaiting(t, c, clk)
	c.stop(time.Hour)
	<-ended
}

func TestNodeStopEndsProcessAndKeepsFolder(t *testing.T) {
	c, _ := testContainer(t, "exec sleep 300")
	stop := background(t, c.run)
	pid := awaitRunning(t, c)
	stop()
	assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	assert.FileExists(t, c.dir.config())
}

func TestContainerReportsEveryChange(t *testing.T) {
	c, clk := testContainer(t, "exit 1")
	changes := make(chan corev1.ContainerState, 10)
	c.changed = func() { changes <- c.snapshot().Current }
	background(t, c.run)
	assert.NotNil(t, (<-changes).Running)
	assert.NotNil(t, (<-changes).Waiting)
	within(t, "it waits", clk.HasWaiters)
	clk.Step(time.Second)
	assert.NotNil(t, (<-changes).Running)
	<-changes
}

func TestProcessInheritsNoSettings(t *testing.T) {
	t.Setenv("PX_LISTEN", "CANARY")
	c, _ := testContainer(t, "env > env.txt; exec sleep 300")
	background(t, c.run)
	awaitRunning(t, c)
	path := filepath.Join(c.dir.run(), "env.txt")
	within(t, "the environment is written", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(b), "PATH=")
	})
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.NotContains(t, string(b), "CANARY")
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("x", 2*maxMessage) + "end"
	assert.Len(t, shorten(long), maxMessage)
	assert.True(t, strings.HasSuffix(shorten(long), "end"))
	assert.Equal(t, "a?b", shorten("a\xffb"))
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	var b backoff
	for _, want := range []int{1, 2, 4, 8, 16, 30, 30} {
		assert.Equal(t, time.Duration(want)*time.Second, b.next(steadyAfter-1))
	}
	assert.Equal(t, time.Second, b.next(steadyAfter), "it ran long enough to be trusted again")
	assert.Equal(t, 2*time.Second, b.next(0))
}
