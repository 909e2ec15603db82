package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func shell(t *testing.T, script string) Command {
	t.Helper()
	return Command{
		Name:    "child",
		Path:    "/bin/sh",
		Args:    []string{"-c", script},
		LogFile: filepath.Join(t.TempDir(), "child.log"),
	}
}

func start(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Stop(0)) })
	return p
}

// waitForLog waits for a line of the child, such as that its traps are set.
func waitForLog(t *testing.T, p *Process, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.LogTail(), text) }, 10*time.Second, 5*time.Millisecond)
}

func TestWaitReturnsNilOnStatusZero(t *testing.T) {
	p := start(t, shell(t, "echo done"))
	require.NoError(t, p.Wait())
	assert.Equal(t, "done", p.LogTail())
	assert.ErrorIs(t, p.Signal(syscall.SIGHUP), os.ErrProcessDone)
}

func TestExitErrorNamesTheLogAndItsEnd(t *testing.T) {
	c := shell(t, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i; done; echo went wrong >&2; exit 7")
	p := start(t, c)

	err := p.Wait()

	var exit *ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, p.PID(), exit.PID)
	var cause *exec.ExitError
	require.ErrorAs(t, err, &cause)
	assert.Equal(t, 7, cause.ExitCode())
	assert.ErrorContains(t, err, "child (pid ")
	assert.ErrorContains(t, err, "exit status 7")
	assert.ErrorContains(t, err, c.LogFile)
	assert.ErrorContains(t, err, "line 12\nwent wrong")
	assert.NotContains(t, err.Error(), "line 3\n", "only the last lines belong into an error")
}

func TestExitErrorOfASilentChild(t *testing.T) {
	err := start(t, shell(t, "kill -KILL $$")).Wait()
	assert.ErrorContains(t, err, "signal: killed")
	assert.ErrorContains(t, err, "nothing")
}

func TestLogIsAppendedAndTheTailIsTheChildsOwn(t *testing.T) {
	c := shell(t, "echo first")
	require.NoError(t, start(t, c).Wait())
	c.Args = []string{"-c", "exit 1"}

	err := start(t, c).Wait()

	assert.NotContains(t, err.Error(), "first", "an earlier child's words must not explain this one's end")
	content, readErr := os.ReadFile(c.LogFile)
	require.NoError(t, readErr)
	assert.Equal(t, "first\n", string(content))
}

func TestLogTailIsBounded(t *testing.T) {
	p := start(t, shell(t, "head -c 100000 /dev/zero | tr '\\0' x; echo; echo end"))
	require.NoError(t, p.Wait())
	assert.LessOrEqual(t, len(p.LogTail()), tailBytes)
	assert.True(t, strings.HasSuffix(p.LogTail(), "x\nend"))
}

func TestLogIsPrivate(t *testing.T) {
	c := shell(t, "true")
	require.NoError(t, start(t, c).Wait())
	info, err := os.Stat(c.LogFile)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestStartErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Command)
		want   []string
	}{
		"no such program": {func(c *Command) { c.Path = "/no/such/program" }, []string{"start child", "/no/such/program"}},
		"not executable":  {func(c *Command) { c.Path = "/etc/passwd" }, []string{"start child", "/etc/passwd"}},
		"no log folder":   {func(c *Command) { c.LogFile = "/no/such/folder/log" }, []string{"start child: open its log", "/no/such/folder/log"}},
		"no work folder":  {func(c *Command) { c.Dir = "/no/such/folder" }, []string{"start child", "/no/such/folder"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := shell(t, "true")
			tc.change(&c)
			_, err := Start(c)
			require.Error(t, err)
			for _, want := range tc.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestEnvAndDirReachTheChild(t *testing.T) {
	c := shell(t, "echo $WORD; pwd")
	c.Dir = t.TempDir()
	c.Env = []string{"WORD=hello"}
	p := start(t, c)
	require.NoError(t, p.Wait())
	assert.Equal(t, "hello\n"+c.Dir, p.LogTail())
}

func TestStopLetsTheChildFinish(t *testing.T) {
	p := start(t, shell(t, "trap 'echo tidied up; exit 3' TERM; echo ready; while :; do sleep 0.05; done"))
	waitForLog(t, p, "ready")

	require.NoError(t, p.Stop(10*time.Second))

	assert.Contains(t, p.LogTail(), "tidied up")
	assert.ErrorContains(t, p.Wait(), "exit status 3", "the exit stays known after Stop")
	require.NoError(t, p.Stop(10*time.Second), "Stop may be called again")
}

func TestStopKillsAStubbornChildAndItsHelpers(t *testing.T) {
	p := start(t, shell(t, "trap '' TERM; sleep 300 & echo helper $!; wait; sleep 300"))
	waitForLog(t, p, "helper")
	helper := pidAfter(t, p.LogTail(), "helper ")

	require.NoError(t, p.Stop(50*time.Millisecond))

	assert.ErrorContains(t, p.Wait(), "signal: killed")
	eventuallyGone(t, helper)
}

func TestStopEndsAFrozenChild(t *testing.T) {
	p := start(t, shell(t, "echo ready; exec sleep 300"))
	waitForLog(t, p, "ready")
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	require.NoError(t, p.Stop(20*time.Millisecond))
	assert.Error(t, p.Wait())
}

func TestDoneClosesWhenTheChildEnds(t *testing.T) {
	p := start(t, shell(t, "read -r line; exit 0"))
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the child's input must be empty, and its end must be seen")
	}
}

func TestChildHasItsOwnProcessGroup(t *testing.T) {
	p := start(t, shell(t, "exec sleep 300"))
	pgid, err := syscall.Getpgid(p.PID())
	require.NoError(t, err)
	assert.Equal(t, p.PID(), pgid)
}

// A goroutine that ends while locked ends its thread too. The child must not
// notice.
func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	var p *Process
	finished := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		var err error
		p, err = Start(Command{Name: "child", Path: "/bin/sleep", Args: []string{"300"}, LogFile: filepath.Join(t.TempDir(), "log")})
		finished <- err
	}()
	require.NoError(t, <-finished)
	t.Cleanup(func() { assert.NoError(t, p.Stop(0)) })
	assert.False(t, p.exitsWithin(300*time.Millisecond), "the parent-death signal came from a thread's end")
}

func TestCredential(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may start a child as somebody else")
	}
	c := shell(t, "id -u; echo again >> /dev/stdout")
	c.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	p := start(t, c)
	require.NoError(t, p.Wait(), "the child must be able to open /dev/stdout anew")
	assert.Contains(t, p.LogTail(), "65534")
}

func TestExitErrorUnwraps(t *testing.T) {
	cause := errors.New("cause")
	assert.ErrorIs(t, &ExitError{Cause: cause}, cause)
}

// parentEnv makes the test binary play a parent that starts a child, prints its
// pid and waits to be killed.
const parentEnv = "PX_TEST_PARENT_LOG"

// nobodyEnv makes that child run as another user. The kernel forgets the
// parent-death signal when a process changes its user.
const nobodyEnv = "PX_TEST_CHILD_IS_NOBODY"

func TestMain(m *testing.M) {
	if log := os.Getenv(parentEnv); log != "" {
		playParent(log)
	}
	goleak.VerifyTestMain(m)
}

func playParent(log string) {
	c := Command{Name: "child", Path: "/bin/sleep", Args: []string{"300"}, LogFile: log}
	if os.Getenv(nobodyEnv) != "" {
		c.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	p, err := Start(c)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("child", p.PID())
	_ = p.Wait()
	os.Exit(1)
}

func TestChildDiesWithAKilledParent(t *testing.T) {
	killParent(t)
}

func TestChildOfAnotherUserDiesWithAKilledParent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may start a child as somebody else")
	}
	killParent(t, nobodyEnv+"=1")
}

func killParent(t *testing.T, env ...string) {
	t.Helper()
	parent := exec.Command(os.Args[0])
	parent.Env = append(append(os.Environ(), parentEnv+"="+filepath.Join(t.TempDir(), "log")), env...)
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	child := pidAfter(t, line, "child ")
	require.True(t, alive(child))

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())

	eventuallyGone(t, child)
}

func pidAfter(t *testing.T, text, word string) int {
	t.Helper()
	_, rest, found := strings.Cut(text, word)
	require.True(t, found, "no %q in %q", word, text)
	pid, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return pid
}

func eventuallyGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 10*time.Millisecond, "pid %d is still running", pid)
}

// alive is false for zombies as well: in a container, orphans may stay unreaped.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
