// Package sizes measures what our processes need of a machine, which the resource
// requests of the manifests and docs/capacity.md are taken from:
//
//	go test ./manifests/sizes -run '^$' -bench . -benchtime 1x -timeout 30m
//
// Each process runs as its own program, with the flags of the manifests, first at
// rest and then under a load that is stated. What it talks to runs beside it: a
// real API server, a stand-in of Compute Engine.
package sizes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

const (
	token = "a-token-for-the-benchmarks"
	// period is how long each measurement takes.
	period = 15 * time.Second
	// drift is the resync period of an unchanged Proxy.
	drift = 5 * time.Minute
)

func fleetSizes() []int { return []int{1000, 10_000} }

// subject is a process that is measured.
type subject struct {
	*process.Process
	host string
}

// start runs one of our programs on a loopback address of its own.
func start(b *testing.B, name string, env []string, args ...string) *subject {
	b.Helper()
	dir := b.TempDir()
	require.NoError(b, programtest.Build(dir, "../../cmd/"+name))
	host := fmt.Sprintf("127.93.%d.%d", os.Getpid()%250, 1+count.Add(1)%250)
	p, err := process.Start(process.Command{
		Name: name, Path: filepath.Join(dir, name), LogFile: filepath.Join(dir, name+".log"), Env: append(os.Environ(), env...),
		Args: append(args, "--ops-addr="+host+":8080"),
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, p.Stop(30*time.Second), p.LogTail()) })
	return &subject{p, host}
}

var count atomic.Int64

// cpu is the CPU time used so far, in user and kernel mode.
func (s *subject) cpu(b *testing.B) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	require.NoError(b, err)
	// proc(5): fields 14 and 15 in ticks of 10 ms, counted from behind the name.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		require.NoError(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// peak is the largest resident set so far, in MB (10^6 bytes).
func (s *subject) peak(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	require.NoError(b, err)
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	require.True(b, ok)
	kB, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	require.NoError(b, err)
	return kB * 1024 / 1e6
}

// measure reports thousandths of a core and memory under a load of that many
// calls a second, from several callers at once.
func (s *subject) measure(b *testing.B, what string, perSecond float64, call func(ctx context.Context, n int) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), period)
	defer cancel()
	began, used := time.Now(), s.cpu(b)
	var n atomic.Int64
	g, limit := errgroup.Group{}, rate.NewLimiter(rate.Limit(perSecond), 1)
	for range 16 {
		g.Go(func() error {
			for limit.Wait(ctx) == nil {
				if err := call(context.WithoutCancel(ctx), int(n.Add(1))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, g.Wait(), s.LogTail())
	<-ctx.Done()
	b.ReportMetric(float64((s.cpu(b)-used).Milliseconds())/time.Since(began).Seconds(), "m-cpu-"+what)
	b.ReportMetric(s.peak(b), "MB-"+what)
	if perSecond > 0 {
		b.ReportMetric(float64(n.Load())/time.Since(began).Seconds(), "calls/s-"+what)
	}
}

func idle(context.Context, int) error { return nil }

// post sends JSON and wants success.
func post(ctx context.Context, method, url, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// awaitReady waits for /readyz.
func (s *subject) awaitReady(b *testing.B) {
	b.Helper()
	require.Eventually(b, func() bool {
		return post(b.Context(), http.MethodGet, "http://"+s.host+":8080/readyz", "", nil) == nil
	}, 2*time.Minute, 100*time.Millisecond, s.LogTail())
}

// BenchmarkDiscovery: a fleet that is leasable, at rest; then 200 leases a second
// that are granted and released; then as many leases out as there are proxies, and
// the whole list twice a second.
func BenchmarkDiscovery(b *testing.B) {
	for _, size := range fleetSizes() {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			cp := controlplanetest.Start(b)
			fillFleet(b, cp, size)
			d := start(b, "discovery", []string{"DISCOVERY_TOKEN=" + token}, "--addr=127.0.0.1:0", "--kubeconfig="+cp.Kubeconfig(),
				"--system-namespace=default", "--token-rate=0", "--lease-store=file:"+filepath.Join(b.TempDir(), "leases"))
			url := "http://" + apiAddress(b, d)
			d.awaitReady(b)
			d.measure(b, "rest", 0.001, idle)
			d.measure(b, "200-leases/s", 200, func(ctx context.Context, _ int) error {
				var grant struct{ LeaseID string }
				if err := post(ctx, http.MethodPost, url+"/v1/leases", `{"target":"shop.example","ttlSeconds":300}`, &grant); err != nil {
					return err
				}
				return post(ctx, http.MethodDelete, url+"/v1/leases/"+grant.LeaseID, "", nil)
			})
			var g errgroup.Group
			g.SetLimit(32)
			for range size {
				g.Go(func() error { return post(b.Context(), http.MethodPost, url+"/v1/leases", `{"ttlSeconds":3600}`, nil) })
			}
			require.NoError(b, g.Wait())
			d.measure(b, "all-leased-2-lists/s", 2, func(ctx context.Context, _ int) error {
				return post(ctx, http.MethodGet, url+"/v1/proxies", "", &struct{}{})
			})
			b.ReportMetric(0, "ns/op")
		})
	}
}

// apiAddress is the listen address in the log.
func apiAddress(b *testing.B, d *subject) (addr string) {
	b.Helper()
	require.Eventually(b, func() bool {
		for line := range strings.Lines(d.LogTail()) {
			var entry struct{ Msg, Addr string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "API listening" {
				addr = entry.Addr
			}
		}
		return addr != ""
	}, time.Minute, 10*time.Millisecond)
	return addr
}

// BenchmarkWebhooks: as many syncs a second as the fleet asks for at rest, each
// about another Proxy, and then 200 a second, as when much of it changes at once.
func BenchmarkWebhooks(b *testing.B) {
	providers := filepath.Join(b.TempDir(), "providers.yaml")
	require.NoError(b, os.WriteFile(providers, []byte("providers: [{name: pods, type: kubernetes, kubernetes: {image: \"squid:1\", allowClients: [10.0.0.0/8]}}]"), 0o600))
	for _, size := range fleetSizes() {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := start(b, "webhooks", nil, "--insecure", "--listen=127.93.0.1:8443", "--providers-config="+providers)
			w.awaitReady(b)
			sync := func(ctx context.Context, n int) error {
				return post(ctx, http.MethodPost, "http://127.93.0.1:8443/hooks/sync", syncRequest(n%size), &struct{}{})
			}
			w.measure(b, "rest", float64(size)/drift.Seconds(), sync)
			w.measure(b, "200-syncs/s", 200, sync)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// syncRequest is about a Proxy whose Pod runs and is probed.
func syncRequest(n int) string {
	uid := uidOf(n)
	pod := v1alpha1.InstanceName(uid)
	return fmt.Sprintf(`{"controller":{},"parent":{"apiVersion":"crawl.example.com/v1alpha1","kind":"Proxy","metadata":{"namespace":"crawl","name":"p%d","uid":%q,"generation":1,
		"finalizers":["metacontroller.io/compositecontroller-proxies"]},"spec":{"mode":"Managed","provider":"pods","port":3128}},
		"children":{"Pod.v1":{"crawl/%[3]s":{"apiVersion":"v1","kind":"Pod","metadata":{"name":%[3]q,"namespace":"crawl","uid":"66666666-7777-8888-9999-%012[1]d"},
		"status":{"phase":"Running","podIP":"10.1.2.3"}}},"ProxyProbe.crawl.example.com/v1alpha1":{}},"related":{},"finalizing":false}`, n, uid, pod)
}

// BenchmarkCloud: a fleet of VMs that are listed every 10 s, each asked for as
// often as the hooks do at rest; and then 200 times a second.
func BenchmarkCloud(b *testing.B) {
	for _, size := range []int{1000, 3000} { // the stand-in is no match for more
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			gce := httptest.NewServer(gcestandin.New(gcestandin.Options{}).Handler())
			b.Cleanup(gce.Close)
			providers, socket := filepath.Join(b.TempDir(), "providers.yaml"), filepath.Join(b.TempDir(), "s")
			require.NoError(b, os.WriteFile(providers, []byte("providers: [{name: gce, type: gcp, gcp: {project: demo, maxInstances: 20000}}]"), 0o600))
			c := start(b, "cloud", nil, "--socket="+socket, "--installation=sizes", "--providers-config="+providers, "--gcp-endpoint="+gce.URL,
				"--mutations-per-second=1000", "--mutations-burst=1000")
			c.awaitReady(b)
			client := adapter.NewClient(socket, 20*time.Second)
			b.Cleanup(client.Close)
			var running atomic.Int64
			put := func(ctx context.Context, n int) error {
				uid := uidOf(n % size)
				got, err := client.Put(ctx, "gce", v1alpha1.InstanceName(uid), adapter.PutRequest{
					UID: string(uid), Namespace: "crawl", Proxy: fmt.Sprint("p", n%size), SpecHash: "v1-aa", Port: 3128,
					Placement: v1alpha1.Placement{Zone: "europe-west1-b", MachineType: "e2-micro", Image: "squid-1"},
				})
				if err == nil && got.State == adapter.StateRunning {
					running.Add(1)
				}
				return err
			}
			for until := time.Now().Add(5 * time.Minute); running.Load() < int64(size); time.Sleep(time.Second) {
				require.True(b, time.Now().Before(until), "%d of %d run: %s", running.Load(), size, c.LogTail())
				running.Store(0)
				for n := range size {
					_ = put(b.Context(), n) // what is not ready yet is asked for again
				}
			}
			c.measure(b, "rest", float64(size)/drift.Seconds(), put)
			c.measure(b, "200-puts/s", 200, put)
			b.ReportMetric(0, "ns/op")
		})
	}
}
