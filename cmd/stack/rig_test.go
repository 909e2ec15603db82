package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// binDir has all our programs, built with the race detector: a data race in any of them fails the
// test.
var binDir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "stack-test-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binDir = dir
		if err := os.Setenv("GORACE", "halt_on_error=1"); err != nil { // for the programs of stacks in this process
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		http.DefaultClient.CloseIdleConnections()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// buildOnce builds the programs when the first test needs them.
var buildOnce = sync.OnceValue(func() error {
	if err := programtest.Build(binDir, "-race", "../..."); err != nil {
		return err
	}
	return os.Chmod(binDir, 0o711) // squid's user may have to run the programs
})

// rig runs stacks whose folders are in a temporary folder of the test's own.
type rig struct {
	t   *testing.T
	tmp string
	env []string
}

// Tests with a rig run in parallel: they mostly wait.
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	assets := controlplanetest.Assets(t)
	require.NoError(t, buildOnce())
	tmp, err := os.MkdirTemp("", "stack-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(tmp, 0o711)) // t.TempDir would keep squid's user out
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(tmp)) })
	return &rig{t: t, tmp: tmp, env: append(os.Environ(),
		"TMPDIR="+tmp, "KUBEBUILDER_ASSETS="+filepath.Dir(assets.APIServer),
		upstream.ProgramEnv+"=")} // tests of the real one set it
}

// command is one run of the program.
type command struct {
	*exec.Cmd
	out *programtest.Output
}

// start starts the program; it is killed when the test ends.
func (r *rig) start(args ...string) *command {
	r.t.Helper()
	out := &programtest.Output{}
	cmd := exec.Command(filepath.Join(binDir, "stack"), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = r.env, out, out
	require.NoError(r.t, cmd.Start())
	r.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return &command{Cmd: cmd, out: out}
}

// up starts a stack and waits until it runs.
func (r *rig) up() *command {
	r.t.Helper()
	c := r.start("up")
	require.Eventually(r.t, func() bool { return strings.Contains(c.out.String(), "Ctrl-C here stops everything") },
		2*time.Minute, 50*time.Millisecond, "the stack does not come up; output: %s", c.out)
	return c
}

// interrupt ends a stack as Ctrl-C does, and wants it to go cleanly.
func (r *rig) interrupt(c *command) {
	r.t.Helper()
	require.NoError(r.t, c.Process.Signal(syscall.SIGINT))
	require.NoError(r.t, c.Wait(), c.out)
}

// nothingLeft waits until the rig's stacks have no process and no file.
func (r *rig) nothingLeft() {
	r.t.Helper()
	r.noProcesses()
	left, err := filepath.Glob(filepath.Join(r.tmp, "egress-proxies-*", "*"))
	require.NoError(r.t, err)
	assert.Empty(r.t, left)
}

func (r *rig) noProcesses() {
	r.t.Helper()
	if !assert.Eventually(r.t, func() bool { return len(r.processes()) == 0 }, 20*time.Second, 50*time.Millisecond) {
		require.Empty(r.t, r.processes(), "left")
	}
}

// processes returns the command lines of all processes that use the rig's folders.
func (r *rig) processes() []string {
	return slices.Collect(maps.Values(r.byPID()))
}

func (r *rig) byPID() map[int]string {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(r.t, err)
	found := map[int]string{}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && bytes.Contains(line, []byte(r.tmp+"/")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(r.t, err)
			found[pid] = string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// pid is the process id of the rig's only process of this program.
func (r *rig) pid(program string) int {
	r.t.Helper()
	var found []int
	for pid, line := range r.byPID() {
		if strings.HasPrefix(line, filepath.Join(binDir, program)+" ") {
			found = append(found, pid)
		}
	}
	require.Len(r.t, found, 1, "%v", r.processes())
	return found[0]
}

// sharedMemory returns the segments of the rig's squids, which are named by
// squid's argument -n.
func (r *rig) sharedMemory() []string {
	var found []string
	for _, line := range r.processes() {
		if m := regexp.MustCompile(` -N -n (\w+) `).FindStringSubmatch(line); m != nil {
			segments, err := filepath.Glob("/dev/shm/" + m[1] + "-*")
			require.NoError(r.t, err)
			require.NotEmpty(r.t, segments, "squid makes some")
			found = append(found, segments...)
		}
	}
	return found
}

// field returns the value after that word in the greeting.
func (c *command) field(t *testing.T, word string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^  ` + word + ` +(\S+)$`).FindStringSubmatch(c.out.String())
	require.Len(t, m, 2, "no %s in: %s", word, c.out)
	return m[1]
}

// shell runs a command line that the greeting suggests.
func shell(ctx context.Context, t *testing.T, line string) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", line).CombinedOutput()
	require.NoError(t, err, "%s\n%s", line, out)
	return string(out)
}
