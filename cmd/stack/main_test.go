package main

import (
	"bytes"
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

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream/upstreamtest"
)

func TestRunExplainsItself(t *testing.T) {
	t.Setenv("PX_REQUIRE_SQUID", "1") // as in CI
	tests := map[string]struct {
		args []string
		want string
	}{
		"no command":           {nil, "which command?"},
		"unknown command":      {[]string{"dance"}, `unknown command "dance"`},
		"unknown flag":         {[]string{"demo", "--fast"}, "fast"},
		"bad log level":        {[]string{"up", "--log-level", "loud"}, `--log-level "loud"`},
		"unknown strategy":     {[]string{"up", "--apply-strategy", "recreate"}, `--apply-strategy "recreate": want dynamic-apply or server-side-apply`},
		"contradicting flags":  {[]string{"demo", "--require-squid", "--squid", "builtin"}, "exclude each other"},
		"short campaign":       {[]string{"chaos", "--duration", "1m"}, "--duration 1m0s: want 2m15s or more"},
		"few proxies":          {[]string{"chaos", "--vms", "1"}, "--pods and --vms 5 to 200"},
		"no such history":      {[]string{"chaos", "--check", "/no/such/file"}, "/no/such/file"},
		"assets take no words": {[]string{"assets", "now"}, `unexpected argument "now"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(context.Background(), tt.args, &bytes.Buffer{})
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"help"}, {"demo", "--help"}, {"up", "-h"}, {"assets", "--help"}, {"chaos", "--help"}} {
		var out bytes.Buffer
		assert.ErrorIs(t, run(context.Background(), args, &out), flags.ErrHelp, args)
		assert.NotEmpty(t, out.String(), args)
	}
}

// TestDemo is the walk through the whole job. With PX_REQUIRE_SQUID=1 it fails
// when Pods run on the built-in proxy.
func TestDemo(t *testing.T) {
	r := newRig(t)
	c := r.start("demo")
	require.NoError(t, c.Wait(), c.out)
	assert.Contains(t, c.out.String(), "All 8 steps passed")
	assert.Contains(t, c.out.String(), "nothing is left")
	r.nothingLeft()
}

func TestDemoOnTheBuiltinProxy(t *testing.T) {
	r := newRig(t)
	r.env = append(r.env, "PX_REQUIRE_SQUID=")
	c := r.start("demo", "--squid", "builtin")
	require.NoError(t, c.Wait(), c.out)
	assert.Contains(t, c.out.String(), "/connectproxy")
	assert.Contains(t, c.out.String(), "All 8 steps passed")
	r.nothingLeft()
}

func TestDemoThatRequiresSquidRejectsTheBuiltinProxy(t *testing.T) {
	r := newRig(t)
	c := r.start("demo", "--require-squid", "--squid", "builtin")
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "--require-squid and --squid builtin exclude each other")
	assert.NotContains(t, c.out.String(), "== 1.", "it must not even start")
	r.nothingLeft()
}

// TestDemoOnTheRealMetacontroller is the walk with it in the stand-in's place,
// under both of its strategies.
func TestDemoOnTheRealMetacontroller(t *testing.T) {
	program := upstreamtest.Program(t)
	for _, strategy := range upstream.Strategies() {
		t.Run(string(strategy), func(t *testing.T) {
			r := newRig(t)
			r.env = append(r.env, upstream.ProgramEnv+"="+program)
			c := r.start("demo", "--apply-strategy", string(strategy))
			require.NoError(t, c.Wait(), c.out)
			assert.Contains(t, c.out.String(), "the real Metacontroller ("+program+", "+string(strategy)+")")
			assert.Contains(t, c.out.String(), "All 8 steps passed")
			r.nothingLeft()
		})
	}
}

func TestStandInRejectsServerSideApply(t *testing.T) {
	r := newRig(t)
	c := r.start("up", "--apply-strategy", "server-side-apply")
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "the stand-in supports only dynamic-apply")
	r.nothingLeft()
}

func TestUpWithMissingMetacontrollerBinary(t *testing.T) {
	r := newRig(t)
	c := r.start("up", "--metacontroller", r.tmp+"/nowhere")
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "the real Metacontroller")
	assert.Contains(t, c.out.String(), r.tmp+"/nowhere")
	assert.NotContains(t, c.out.String(), "API server", "it must not even start")
	r.nothingLeft()
}

// A Metacontroller that exits right after its start fails the stack.
func TestUpWithMetacontrollerThatExits(t *testing.T) {
	r := newRig(t)
	program := r.tmp + "/metacontroller"
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho no such flag >&2\nexit 2\n"), 0o700))
	c := r.start("up", "--metacontroller", program)
	require.Error(t, c.Wait())
	assert.Contains(t, c.out.String(), "metacontroller ended")
	assert.Contains(t, c.out.String(), "no such flag")
	r.noProcesses()
}

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
	fetch := regexp.MustCompile(`(?m)^DISCOVERY_TOKEN=.*$`).FindString(c.out.String())
	assert.Contains(t, shell(ctx, t, fetch), `"peer":"127.`, "a page, through the proxy")
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
