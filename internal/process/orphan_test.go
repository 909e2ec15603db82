package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

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

// alive is false for zombies as well: in a container nobody may reap orphans.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
