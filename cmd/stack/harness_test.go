package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/walk"
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

const (
	fleetPatience = 2 * time.Minute
	fleetPoll     = 100 * time.Millisecond
)

// running is a stack in this process, with child processes as usual, and clients for it.
type running struct {
	t     *testing.T
	stack *stack.Stack
	facts walk.Stack
	api   dynamic.Interface
	core  kubernetes.Interface
	// began is when the stack was ready.
	began time.Time
}

// run starts a stack, which is stopped when the test ends.
func (r *rig) run(cfg stack.Config) *running {
	r.t.Helper()
	cfg.Home, cfg.BinDir, cfg.Assets = filepath.Join(r.tmp, "home"), binDir, controlplanetest.Assets(r.t)
	cfg.Log, cfg.Progress, cfg.Squid = slog.New(slog.DiscardHandler), io.Discard, "auto"
	s, err := stack.Start(r.t.Context(), cfg)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, s.Stop(false)) })
	run := &running{t: r.t, stack: s, facts: s.Facts(), began: time.Now()}
	run.api, err = dynamic.NewForConfig(s.RESTConfig())
	require.NoError(r.t, err)
	run.core, err = kubernetes.NewForConfig(s.RESTConfig())
	require.NoError(r.t, err)
	return run
}

// TestOnOneStack has the tests that need a whole stack, with the stand-in for Metacontroller. They share
// one; each removes its objects.
func TestOnOneStack(t *testing.T) {
	r := newRig(t).run(stack.Config{CloudInitSecrets: true})
	for _, tt := range []struct {
		name string
		test func(*running)
	}{
		{"cloud adapter is killed", killTheAdapter},
		{"orphan does not block the next Proxy of its name", orphanDoesNotBlockTheNextProxyOfItsName},
		// A small fleet; hooktest has fifty. It comes last: its Secrets must not be in any log or object.
		{"shared Secret is rotated", func(r *running) { shareAndRotate(r, size{sharers: 12, loners: 3}) }},
	} {
		ok := t.Run(tt.name, func(t *testing.T) {
			on := *r
			on.t = t
			tt.test(&on)
		})
		if !ok {
			return // its objects may be left
		}
	}
}

func (r *running) proxies() dynamic.ResourceInterface {
	return r.api.Resource(v1alpha1.ProxyResource()).Namespace(r.facts.Namespace)
}

// managed creates a Managed Proxy, with cloud-init from that Secret if any.
func (r *running) managed(name, secret string) {
	r.t.Helper()
	p := &v1alpha1.Proxy{Spec: v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: r.facts.Provider}}
	if secret != "" {
		p.Spec.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: secret, Key: "user-data"}}
	}
	r.create(name, p)
}

func (r *running) create(name string, p *v1alpha1.Proxy) {
	r.t.Helper()
	p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy"}
	p.Name = name
	p.Spec.HealthCheck = &v1alpha1.HealthCheck{
		ProbeURL: r.facts.TargetURL + "/generate_204", Interval: metav1.Duration{Duration: 5 * time.Second}, Timeout: metav1.Duration{Duration: 4 * time.Second},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	require.NoError(r.t, err)
	delete(content, "status")
	_, err = r.proxies().Create(r.t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(r.t, err)
}

// secret creates a Secret that is labelled for one purpose, or for none.
func (r *running) secret(name, label string, data map[string]string) {
	r.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	if label != "" {
		secret.Labels = map[string]string{label: v1alpha1.ValueTrue}
	}
	_, err := r.core.CoreV1().Secrets(r.facts.Namespace).Create(r.t.Context(), secret, metav1.CreateOptions{})
	require.NoError(r.t, err)
}

// statuses are the statuses of all Proxies, by name.
func (r *running) statuses() map[string]v1alpha1.ProxyStatus {
	r.t.Helper()
	list, err := r.proxies().List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	out := map[string]v1alpha1.ProxyStatus{}
	for _, obj := range list.Items {
		var p v1alpha1.Proxy
		require.NoError(r.t, v1alpha1.FromUnstructured(obj.Object, &p))
		out[p.Name] = p.Status
	}
	return out
}

// leasable returns the Proxies that discovery would lease now.
func (r *running) leasable(ctx context.Context) (map[string]bool, error) {
	var body struct {
		Proxies []struct {
			Name     string
			Leasable bool
		}
	}
	text, err := get(ctx, r.facts.DiscoveryURL+"/v1/proxies", r.facts.Token)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, p := range body.Proxies {
		if p.Leasable {
			out[p.Name] = true
		}
	}
	return out, nil
}

func get(ctx context.Context, url, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return body, err
}

// eventually polls a condition, and fails the test after a timeout.
func (r *running) eventually(what string, condition func() bool) {
	r.t.Helper()
	for end := time.Now().Add(fleetPatience); !condition(); time.Sleep(fleetPoll) {
		require.True(r.t, time.Now().Before(end), "not within %s: %s", fleetPatience, what)
	}
	r.t.Logf("%s after %s", what, time.Since(r.began).Round(100*time.Millisecond))
}
