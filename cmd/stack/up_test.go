package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// suggestedVM is the last command that the greeting suggests.
func suggestedVM(t *testing.T, c *command) string {
	t.Helper()
	all := applyCommand().FindAllString(c.out.String(), -1)
	require.Len(t, all, 2)
	return all[1]
}

func applyCommand() *regexp.Regexp {
	return regexp.MustCompile(`(?s)\S+ --kubeconfig \S+ apply -f - <<'EOF'\n.*?\nEOF\n`)
}

// suggested returns the first commands of the greeting: apply, get without the endless watch, and
// lease.
func suggested(t *testing.T, c *command) (apply, get, lease string) {
	t.Helper()
	text := c.out.String()
	apply = applyCommand().FindString(text)
	get = strings.TrimSuffix(regexp.MustCompile(`(?m)^.* get px -o wide --watch$`).FindString(text), " --watch")
	lease = regexp.MustCompile(`(?m)^curl .*$`).FindString(text)
	for _, line := range []string{apply, get, lease} {
		require.NotEmpty(t, line, text)
	}
	return apply, get, lease
}

func TestUpPrintsCommandsThatWork(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed, and one of the suggested commands is curl's")
	}
	r := newRig(t)
	c := r.up()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	apply, get, lease := suggested(t, c)
	assert.Contains(t, shell(ctx, t, apply), "berlin created")
	require.Eventually(t, func() bool { return strings.Contains(shell(ctx, t, get), "Ready") }, time.Minute, 200*time.Millisecond)
	var grant struct{ ProxyURL string }
	require.Eventually(t, func() bool {
		return json.Unmarshal([]byte(shell(ctx, t, lease)), &grant) == nil && grant.ProxyURL != ""
	}, time.Minute, 100*time.Millisecond)
	setUp := regexp.MustCompile(`(?m)^export .*$`).FindString(c.out.String())
	listed := shell(ctx, t, setUp+` && kubectl get px -o name && curl -s -H "Authorization: Bearer $TOKEN" "$DISCOVERY/v1/proxies"`)
	assert.Contains(t, listed, "/berlin\n")
	assert.Contains(t, listed, `"name":"berlin"`)
	assert.Contains(t, shell(ctx, t, suggestedVM(t, c)), "madrid created")
	ready := regexp.MustCompile(`(?m)^madrid .* Ready `)
	require.Eventually(t, func() bool { return ready.MatchString(shell(ctx, t, get)) }, time.Minute, 200*time.Millisecond)
	r.interrupt(c)
	r.nothingLeft()
}

func TestTwoStacksAtOnce(t *testing.T) {
	r := newRig(t)
	one, two := r.up(), r.up()
	for _, word := range []string{"kubeconfig", "discovery", "token", "probe target", "logs"} {
		assert.NotEqual(t, one.field(t, word), two.field(t, word), word)
	}
	r.interrupt(one)
	assert.FileExists(t, two.field(t, "kubeconfig"), "the other one is left alone")
	r.interrupt(two)
	r.nothingLeft()
}

func TestNextStackCleansUpAfterAKilledOne(t *testing.T) {
	r := newRig(t)
	killed := r.up()
	applyOne(t, killed)
	segments := r.sharedMemory()
	require.NoError(t, killed.Process.Kill())
	require.Error(t, killed.Wait())
	r.noProcesses()
	assert.DirExists(t, filepath.Dir(killed.field(t, "logs")), "no process was left to remove it")

	next := r.up()
	assert.NoDirExists(t, filepath.Dir(killed.field(t, "logs")), "the next one did")
	for _, s := range segments {
		assert.NoFileExists(t, s, "not even outside of the folder")
	}
	r.interrupt(next)
	r.nothingLeft()
}

// applyOne makes the stack run a proxy process.
func applyOne(t *testing.T, c *command) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	apply, get, _ := suggested(t, c)
	shell(ctx, t, apply)
	require.Eventually(t, func() bool { return strings.Contains(shell(ctx, t, get), "Ready") }, time.Minute, 200*time.Millisecond)
}

func TestUpNamesThePartThatExitsAndStops(t *testing.T) {
	r := newRig(t)
	c := r.up()
	require.NoError(t, syscall.Kill(r.pid("discovery"), syscall.SIGKILL))
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "discovery ended")
	assert.Contains(t, c.out.String(), "logs are left in")
	r.noProcesses()
}

func TestUpInterruptedDuringTheStart(t *testing.T) {
	r := newRig(t)
	c := r.start("up")
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(filepath.Join(r.tmp, "egress-proxies-*", "stack-*", "controlplane"))
		return err == nil && len(left) > 0
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "interrupted")
	r.nothingLeft()
}
