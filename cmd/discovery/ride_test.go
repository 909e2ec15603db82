package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	crawling "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

const (
	// mostOutage is the documented limit of a rollout with a lease file.
	mostOutage = 10 * time.Second
	// podStart is what a node takes to start a Pod whose image and volume it has.
	podStart = 2 * time.Second
	// fairStart is what a process takes at the most to start and to sync, unless the
	// machine is busy with other tests.
	fairStart = 2500 * time.Millisecond
)

// deployed is discovery as the manifests run it.
type deployed struct {
	pod       corev1.PodSpec
	container corev1.Container
}

func manifest(t *testing.T) deployed {
	t.Helper()
	content, err := os.ReadFile("../../manifests/base/discovery/statefulset.yaml")
	require.NoError(t, err)
	var set appsv1.StatefulSet
	require.NoError(t, yaml.UnmarshalStrict(content, &set))
	return deployed{set.Spec.Template.Spec, set.Spec.Template.Spec.Containers[0]}
}

// between is what a cluster adds to the outage of the process: its network may
// refuse requests once the Pod is terminating, its node starts
// another Pod, and requests come in at the next readiness probe.
func (d deployed) between() time.Duration {
	return podStart + time.Duration(d.container.Lifecycle.PreStop.Sleep.Seconds+int64(d.container.ReadinessProbe.PeriodSeconds))*time.Second
}

// args are those of the manifest, on an address of its own, with the
// lease file in dir.
func (d deployed) args(t *testing.T, dir, host string) []string {
	t.Helper()
	var args []string
	for _, arg := range d.container.Args {
		arg = strings.Replace(arg, "=:", "="+host+":", 1)
		args = append(args, strings.Replace(arg, "file:/var/lib/discovery/", "file:"+dir+"/", 1))
	}
	require.Contains(t, args, "--addr="+host+":8090")
	require.Contains(t, args, "--lease-store=file:"+dir+"/leases")
	return args
}

// pod is a process of discovery that is started and ended as a kubelet does.
type pod struct {
	programtest.Output
	cmd *exec.Cmd
}

func startPod(t *testing.T, args []string) *pod {
	t.Helper()
	p := &pod{}
	p.cmd = command(t, []string{"DISCOVERY_TOKEN=" + token}, args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.Output, &p.Output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.cmd.Start())
	return p
}

// end sends SIGTERM, and wants the process to have ended when its grace is over.
func (p *pod) end(t *testing.T, grace time.Duration) {
	t.Helper()
	killed := time.AfterFunc(grace, func() { _ = p.cmd.Process.Kill() })
	defer killed.Stop()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Wait(), p.String())
}

// outage measures the longest time without an answer, between two
// answers, asking on a connection of its own each time.
type outage struct {
	last    time.Time
	longest time.Duration
}

func (o *outage) watch(ctx context.Context, url string) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for tick := time.Tick(10 * time.Millisecond); ctx.Err() == nil; <-tick {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/proxies?limit=1", nil)
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			o.answered()
		}
	}
}

func (o *outage) answered() {
	now := time.Now()
	if !o.last.IsZero() {
		o.longest = max(o.longest, now.Sub(o.last))
	}
	o.last = now
}

// crawlers do what crawlers do, in Go: some hold a lease all the time, the others
// take one after the other and report.
type crawlers struct {
	mu     sync.Mutex
	errs   []error
	leases atomic.Int64
}

func (c *crawlers) fail(err error) {
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	}
}

func (c *crawlers) crawl(ctx context.Context, client *crawling.Client, hold bool) {
	for n := 0; ctx.Err() == nil; n++ {
		l, err := client.Acquire(context.WithoutCancel(ctx), crawling.Want{
			TTL: 15 * time.Second, Target: "shop.example",
			OnLost: func(_ *crawling.Lease, err error) { c.fail(err) },
		})
		if err != nil {
			c.fail(err)
			return
		}
		c.leases.Add(1)
		if hold {
			<-ctx.Done()
		}
		c.fail(l.Report(context.WithoutCancel(ctx), crawling.Report{Result: crawling.OK}))
		c.fail(l.Err())
		c.fail(l.Release(context.WithoutCancel(ctx)))
	}
}

// pythons is the same in Python. It goes on until its input ends, and prints what
// went wrong and how many leases it had.
type pythons struct {
	cmd   *exec.Cmd
	out   programtest.Output
	stdin interface{ Close() error }
}

func startPythons(t *testing.T, url string) *pythons {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not in PATH")
	}
	p := &pythons{cmd: exec.CommandContext(t.Context(), python, "testdata/ride.py")}
	p.cmd.Env = append(os.Environ(), "DISCOVERY_URL="+url, "DISCOVERY_TOKEN="+token, "PYTHONPATH=../../client/python", "PYTHONDONTWRITEBYTECODE=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	return p
}

func (p *pythons) stop(t *testing.T) (leases int, errs []string) {
	t.Helper()
	require.NoError(t, p.stdin.Close())
	require.NoError(t, p.cmd.Wait(), p.out.String())
	for lines := bufio.NewScanner(strings.NewReader(p.out.String())); lines.Scan(); {
		var result struct {
			Leases int
			Errors []string
		}
		if strings.HasPrefix(lines.Text(), `{"leases"`) {
			require.NoError(t, json.Unmarshal(lines.Bytes(), &result))
			return result.Leases, result.Errors
		}
	}
	require.Fail(t, "no result", p.out.String())
	return 0, nil
}

// TestRestartOnAFileLosesNoLease restarts the one discovery that a lease file
// allows, with the flags and the times of the manifests, while crawlers are busy.
// It is away for a while; no lease is lost by that, and no crawler sees an error.
func TestRestartOnAFileLosesNoLease(t *testing.T) {
	t.Parallel()
	d := manifest(t)
	c := realCluster(t)
	c.secret("login", map[string]string{v1alpha1.LabelCredentials: "true"})
	c.renew(time.Now())
	for i := range 20 {
		c.readyProxy(fmt.Sprintf("p%d", i), "login")
	}
	host := controlplanetest.Addr()
	args := append(d.args(t, t.TempDir(), host), "--kubeconfig="+c.kubeconfig, "--namespace="+c.namespace, "--system-namespace="+c.namespace)
	url := "http://" + host + ":8090"
	running := startPod(t, args)
	awaitAnswer(t, url)
	var r ride
	for range 3 {
		running, r = d.restart(t, running, args, url)
		t.Logf("away for %s, %s of it for what a cluster does; %d leases in Go, %d in Python", r.outage.Round(time.Millisecond), d.between(), r.leases, r.pythons)
		if r.outage < d.between()+fairStart {
			break // else the machine was too slow: leases of 15 s may have expired
		}
	}
	running.end(t, time.Minute)

	assert.NoError(t, errors.Join(r.errs...))
	assert.Empty(t, r.problems)
	assert.Greater(t, r.outage, d.between(), "the outage was no outage")
	assert.Less(t, r.outage, mostOutage)
	assert.NotContains(t, running.String(), "CANARY")
}

// ride is how crawlers fared during a restart: what went wrong in Go and in Python, and
// how many leases they had.
type ride struct {
	outage          time.Duration
	errs            []error
	problems        []string
	leases, pythons int
}

// restart ends a Pod that crawlers are busy with, and starts the next one.
func (d deployed) restart(t *testing.T, old *pod, args []string, url string) (next *pod, r ride) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var o outage
	var crowd crawlers
	var all sync.WaitGroup
	all.Go(func() { o.watch(ctx, url) })
	api := &http.Transport{MaxIdleConnsPerHost: 64}
	defer api.CloseIdleConnections()
	client, err := crawling.New(crawling.Config{URL: url, Token: token, HTTPClient: &http.Client{Transport: api}})
	require.NoError(t, err)
	for i := range 8 {
		all.Go(func() { crowd.crawl(ctx, client, i%2 == 0) })
	}
	python := startPythons(t, url)
	busy := func() {
		before := crowd.leases.Load()
		require.Eventually(t, func() bool { return crowd.leases.Load() > before+100 && strings.Contains(python.out.String(), "busy") }, time.Minute, 10*time.Millisecond, python.out.String())
	}
	busy()
	old.end(t, time.Duration(*d.pod.TerminationGracePeriodSeconds-d.container.Lifecycle.PreStop.Sleep.Seconds)*time.Second)
	assert.NotContains(t, old.String(), "CANARY")
	time.Sleep(d.between())
	next = startPod(t, args)
	busy()
	stop()
	all.Wait()
	r = ride{outage: o.longest, errs: crowd.errs, leases: int(crowd.leases.Load())}
	r.pythons, r.problems = python.stop(t)
	return next, r
}

// TestABackupOfTheLeaseFile takes one of a busy process, as a snapshot of the
// volume does, and restores it: the leases of that moment are back, also those
// that were given back since, and later ones are unknown.
func TestABackupOfTheLeaseFile(t *testing.T) {
	t.Parallel()
	d := manifest(t)
	c := realCluster(t)
	c.secret("login", map[string]string{v1alpha1.LabelCredentials: "true"})
	c.renew(time.Now())
	for i := range 3 {
		c.readyProxy(fmt.Sprintf("p%d", i), "login")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "leases")
	host := strings.Replace(controlplanetest.Addr(), "127.99.", "127.97.", 1) // the port is fixed, and tests run in parallel
	args := append(d.args(t, dir, host), "--kubeconfig="+c.kubeconfig, "--namespace="+c.namespace, "--system-namespace="+c.namespace, "--drain=0s")
	p := startPod(t, args)
	r := &running{T: t, api: "http://" + host + ":8090"}
	awaitAnswer(t, r.api)
	lease := func() string {
		code, grant, _ := r.ask(http.MethodPost, "/v1/leases", `{"ttlSeconds":600}`)
		require.Equal(t, http.StatusCreated, code)
		return grant["leaseID"].(string)
	}
	kept, ended := lease(), lease()

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP)) // a snapshot is of one moment
	backup, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	code, _, _ := r.ask(http.MethodDelete, "/v1/leases/"+ended, "")
	require.Equal(t, http.StatusNoContent, code)
	later := lease()
	http.DefaultClient.CloseIdleConnections()
	p.end(t, time.Minute)

	require.NoError(t, os.WriteFile(file, backup, 0o600))
	p = startPod(t, args)
	awaitAnswer(t, r.api)
	for id, want := range map[string]int{kept: http.StatusOK, ended: http.StatusOK, later: http.StatusNotFound} {
		code, _, _ := r.ask(http.MethodGet, "/v1/leases/"+id, "")
		assert.Equal(t, want, code)
	}
	http.DefaultClient.CloseIdleConnections()
	p.end(t, time.Minute)
}

// awaitAnswer waits until the API serves.
func awaitAnswer(t *testing.T, url string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	require.Eventually(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/proxies", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
}
