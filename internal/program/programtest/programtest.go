// Package programtest runs our processes within their tests.
package programtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
)

// patience is the timeout for a process to start on a busy machine.
const patience = time.Minute

// Output collects what a process prints, for concurrent reads. The zero value is empty.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String is all that was printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Address waits for a JSON log line with this message and returns its address. Processes
// listen on port 0 and log the port: a port that is free now may be taken a moment later.
func (o *Output) Address(t testing.TB, message string) string {
	t.Helper()
	var addr string
	require.Eventually(t, func() bool {
		for line := range strings.Lines(o.String()) {
			var entry struct{ Msg, Addr string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == message {
				addr = entry.Addr
			}
		}
		return addr != ""
	}, patience, 5*time.Millisecond, "no %q with an address in the log", message)
	return addr
}

// Process is a process that runs.
type Process struct {
	// Output is what it prints.
	Output
	stop context.CancelFunc
	done chan error
}

// Start runs a process until the test ends, and fails the test unless it exits cleanly.
func Start(t testing.TB, run program.Run, args ...string) *Process {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &Process{stop: stop, done: make(chan error, 1)}
	go func() { p.done <- run(ctx, args, &p.Output) }()
	t.Cleanup(func() { assert.NoError(t, p.Stop(), p) })
	return p
}

// Stop ends the process's context and returns its error. It is idempotent.
func (p *Process) Stop() error {
	p.stop()
	err := <-p.done
	p.done <- err
	return err
}

// Ops waits for the ops endpoint and returns its URL.
func (p *Process) Ops(t testing.TB) string {
	t.Helper()
	return "http://" + p.Address(t, "ops endpoint listening")
}

// AwaitReady waits until /readyz returns 200.
func (p *Process) AwaitReady(t testing.TB) {
	t.Helper()
	url := p.Ops(t) + "/readyz"
	var answer string
	if !assert.Eventually(t, func() bool {
		var code int
		code, answer = Get(t, url)
		return code == http.StatusOK
	}, patience, 10*time.Millisecond) {
		require.Fail(t, "not ready", "%s\n%s", answer, p)
	}
}

// Get returns the status and the body at url.
func Get(t testing.TB, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// DeadKubeconfig is a kubeconfig file for an API server that is not there.
func DeadKubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`), 0o600))
	return path
}

// SourcesEnv names an environment variable that changes with every source file of ours. `make` sets it: Go's test cache
// looks at the files and variables that a test reads, not at what the compiler reads, and would miss that a program
// which the test builds has changed.
const SourcesEnv = "PX_SOURCES"

// Build builds programs of ours into the folder dir. args are packages, and flags of go build in front of them. The flags
// are those of the Makefile, so that both use the same cached packages: static programs, or with -race those of the tests.
func Build(dir string, args ...string) error {
	_ = os.Getenv(SourcesEnv)
	cgo := "0"
	if slices.Contains(args, "-race") {
		cgo = "1" // the race detector needs it
	}
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-o", filepath.Clean(dir) + "/"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", args, err, out)
	}
	return nil
}
