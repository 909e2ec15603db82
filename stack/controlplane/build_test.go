package controlplane

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
)

// fakeGo stands in for the go command: it notes its arguments, and makes the file
// that -o names, slowly or not at all as the test wants.
type fakeGo struct {
	dir string
}

// newFakeGo puts a go command in PATH that runs body, with the variables $out (the file to write)
// and $dir (the test's folder).
func newFakeGo(t *testing.T, body string) fakeGo {
	t.Helper()
	dir := t.TempDir()
	writeScript(t, filepath.Join(dir, "go"), `dir='`+dir+`'
echo "$PWD: $CGO_ENABLED $GOWORK $*" >> "$dir/calls"
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
`+body)
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return fakeGo{dir: dir}
}

const succeed = `printf '#!/bin/sh\necho Kubernetes v1.36.3\n' > "$out" && chmod +x "$out"`

func (g fakeGo) calls(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(g.dir, "calls"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
}

// lines is a writer that may be read while it is written to.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestEnsureBuildsOnce(t *testing.T) {
	cacheDir := isolate(t)
	compiler := newFakeGo(t, succeed)
	var progress lines

	assets, err := Ensure(t.Context(), &progress)

	require.NoError(t, err)
	assert.Equal(t, filepath.Join(cacheDir, "kube-apiserver"), assets.APIServer)
	calls := compiler.calls(t)
	require.Len(t, calls, 3)
	assert.Contains(t, calls[0], "/stack/controlplane/etcd: 0 off build")
	assert.Contains(t, calls[1], "/stack/controlplane/kubernetes: 0 off build")
	assert.Contains(t, calls[1], "-X k8s.io/component-base/version.gitVersion=v1.")
	assert.True(t, strings.HasSuffix(calls[2], "k8s.io/kubernetes/cmd/kubectl"))
	assert.Contains(t, progress.String(), "takes minutes the first time")
	assert.Contains(t, progress.String(), "[2/3] kube-apiserver v1.")
	assert.Regexp(t, `(?m): done after \d+s$`, progress.String())

	found, err := Locate(t.Context())
	require.NoError(t, err)
	assert.Equal(t, assets, found)
	_, err = Ensure(t.Context(), io.Discard)
	require.NoError(t, err)
	assert.Len(t, compiler.calls(t), 3, "nothing is built twice")
}

func TestBuildResumes(t *testing.T) {
	c := testCache(t)
	compiler := newFakeGo(t, `case "$out" in *kubectl) echo no kubectl today >&2; exit 1;; esac
`+succeed)
	err := newBuilder(c, io.Discard).build(t.Context())
	require.ErrorContains(t, err, "go build kubectl (pid ")
	require.ErrorContains(t, err, "no kubectl today")
	_, complete := c.assets()
	require.False(t, complete)
	first := len(compiler.calls(t))

	compiler = newFakeGo(t, succeed)
	require.NoError(t, newBuilder(c, io.Discard).build(t.Context()))

	assert.Equal(t, 3, first)
	assert.Len(t, compiler.calls(t), 1, "what is whole is kept")
}

func TestTwoBuildersShareTheWork(t *testing.T) {
	c := testCache(t)
	compiler := newFakeGo(t, `while [ ! -e "$dir/finish" ]; do sleep 0.02; done
`+succeed)
	var progress lines
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { assert.NoError(t, newBuilder(c, &progress).build(t.Context())) })
	}
	testwait.Eventually(t, "one waits for the other", func() bool { return strings.Contains(progress.String(), "is under way: waiting for it") })
	require.NoError(t, os.WriteFile(filepath.Join(compiler.dir, "finish"), nil, 0o600))
	both.Wait()

	assert.Len(t, compiler.calls(t), 3)
	assert.Equal(t, 1, strings.Count(progress.String(), "is under way: waiting for it"))
	_, complete := c.assets()
	assert.True(t, complete)
}

func TestBuildReportsProgress(t *testing.T) {
	compiler := newFakeGo(t, `echo go: downloading example.com/big v1.0.0
while [ ! -e "$dir/finish" ]; do sleep 0.02; done
`+succeed)
	clock := clocktesting.NewFakeClock(epoch())
	var progress lines
	b := newBuilder(testCache(t), &progress)
	b.clock = clock
	built := make(chan error)
	go func() { built <- b.build(t.Context()) }()

	testwait.Eventually(t, "the first build waits", func() bool { return clock.HasWaiters() && len(compiler.calls(t)) == 1 })
	testwait.Eventually(t,

		"it says what it does", func() bool {
			log, err := os.ReadFile(filepath.Join(b.cache.dir, "build-etcd.log"))
			return err == nil && len(log) > 0
		})

	clock.Step(progressInterval)
	testwait.Eventually(t, "the first sign of life", func() bool { return strings.Contains(progress.String(), "still building after 10s") })
	clock.Step(progressInterval)
	testwait.Eventually(t, "the second", func() bool { return strings.Contains(progress.String(), "still building after 20s") })
	assert.Contains(t, progress.String(), "(go: downloading example.com/big v1.0.0)")

	require.NoError(t, os.WriteFile(filepath.Join(compiler.dir, "finish"), nil, 0o600))
	require.NoError(t, <-built)
}

func TestInterruptedBuildCleansUp(t *testing.T) {
	c := testCache(t)
	compiler := newFakeGo(t, `trap 'echo interrupted >> "$dir/signals"; exit 1' INT
echo half > "$out"
while :; do sleep 0.02; done`)
	ctx, cancel := context.WithCancel(t.Context())
	built := make(chan error)
	go func() { built <- newBuilder(c, io.Discard).build(ctx) }()
	partial := filepath.Join(c.dir, unfinished+Etcd)
	testwait.Eventually(t, "the build has begun", func() bool { _, err := os.Stat(partial); return err == nil })

	cancel()

	require.ErrorIs(t, <-built, context.Canceled)
	assert.FileExists(t, filepath.Join(compiler.dir, "signals"), "go must be interrupted, not killed, to tidy up")
	assert.NoFileExists(t, filepath.Join(c.dir, Etcd))
	newFakeGo(t, succeed)
	require.NoError(t, newBuilder(c, io.Discard).build(t.Context()))
	assert.NoFileExists(t, partial)
}

func TestBuildAfterAKilledBuilder(t *testing.T) {
	cacheDir := isolate(t)
	compiler := newFakeGo(t, `echo $$ > "$dir/pid"
echo half > "$out"
exec sleep 300`)
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), roleEnv+"=builder")
	require.NoError(t, victim.Start())
	t.Cleanup(func() { _ = victim.Process.Kill() })
	partial := filepath.Join(cacheDir, unfinished+Etcd)
	testwait.Eventually(t, "the build has begun", func() bool { _, err := os.Stat(partial); return err == nil })

	require.NoError(t, victim.Process.Kill())
	require.Error(t, victim.Wait())

	pid, err := os.ReadFile(filepath.Join(compiler.dir, "pid"))
	require.NoError(t, err)
	testwait.Eventually(t, "its compiler is gone", func() bool { return !alive(strings.TrimSpace(string(pid))) })
	_, err = Locate(t.Context())
	require.ErrorIs(t, err, ErrNotBuilt)
	newFakeGo(t, succeed)
	_, err = Ensure(t.Context(), io.Discard)
	require.NoError(t, err, "the lock of a dead builder is free")
	assert.NoFileExists(t, partial)
}

func TestBuildWithoutGo(t *testing.T) {
	isolate(t)
	_, err := Ensure(t.Context(), io.Discard)
	assert.ErrorContains(t, err, "install Go")
	assert.ErrorContains(t, err, AssetsEnv)
}

func TestBuildWithoutOutputFails(t *testing.T) {
	newFakeGo(t, "exit 0")
	err := newBuilder(testCache(t), io.Discard).build(t.Context())
	assert.ErrorContains(t, err, "put the built etcd in its place")
}

func TestVersionFlags(t *testing.T) {
	flags := versionFlags("v1.36.3")
	for _, want := range []string{"gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"} {
		assert.Contains(t, flags, "-X k8s.io/component-base/version."+want)
	}
}

func TestNodeProgramsAreBuiltBesideTheControlPlane(t *testing.T) {
	t.Setenv(CacheEnv, t.TempDir())
	compiler := newFakeGo(t, succeed)
	var progress lines
	got, err := EnsureNode(t.Context(), &progress)
	require.NoError(t, err)
	for _, program := range []string{got.Kubelet, got.ControllerManager, got.Scheduler} {
		_, err := exec.LookPath(program)
		assert.NoError(t, err)
	}
	assert.Contains(t, progress.String(), "kubelet, controller manager and scheduler")
	assert.Len(t, compiler.calls(t), 3)

	again, err := EnsureNode(t.Context(), &progress)
	require.NoError(t, err)
	assert.Equal(t, got, again)
	assert.Len(t, compiler.calls(t), 3, "once is enough")
}
