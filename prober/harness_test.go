package prober

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// patience is the timeout of waits for conditions that are sure to become true.
const patience = 30 * time.Second

const (
	unknown   = v1alpha1.VerdictUnknown
	healthy   = v1alpha1.VerdictHealthy
	unhealthy = v1alpha1.VerdictUnhealthy
)

// epoch is when fake clocks start.
func epoch() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// rig drives a runner step by step: no goroutine runs beside the test, and the clock
// moves only when the test moves it.
type rig struct {
	t       *testing.T
	runner  *runner
	clock   *clocktesting.FakeClock
	pending map[types.NamespacedName]int
	reg     *prometheus.Registry
}

func newRig(t *testing.T, workers int) *rig {
	t.Helper()
	return rigWith(t, runnerConfig{workers: workers})
}

// rigWith returns a rig whose runner leads. Its jitter is always half of the maximum.
func rigWith(t *testing.T, cfg runnerConfig) *rig {
	t.Helper()
	r := &rig{t: t, clock: clocktesting.NewFakeClock(epoch()), pending: map[types.NamespacedName]int{}, reg: prometheus.NewRegistry()}
	cfg.shard, cfg.clock, cfg.metrics, cfg.log = v1alpha1.Shard{Count: 1}, r.clock, newMetrics(r.reg), quiet()
	cfg.enqueue = func(key types.NamespacedName) { r.pending[key]++ }
	r.runner = newRunner(cfg)
	r.runner.leading = true
	r.reg.MustRegister(newFleetCollector(r.runner))
	r.runner.jitter = func(d time.Duration) time.Duration { return d / 2 }
	return r
}

// handed dispatches and returns the jobs.
func (r *rig) handed() []job {
	r.t.Helper()
	r.runner.dispatch(context.Background())
	var jobs []job
	for len(r.runner.jobs) > 0 {
		jobs = append(jobs, <-r.runner.jobs)
	}
	return jobs
}

// one expects one job.
func (r *rig) one() job {
	r.t.Helper()
	jobs := r.handed()
	require.Len(r.t, jobs, 1)
	return jobs[0]
}

// none expects no job.
func (r *rig) none() {
	r.t.Helper()
	require.Empty(r.t, r.handed())
}

// step advances the clock while the scheduler runs.
func (r *rig) step(d time.Duration) {
	r.clock.Step(d)
	now := r.clock.Now()
	r.runner.awake.Store(&now)
}

// round probes the only proxy once and advances to its next probe.
func (r *rig) round(result probe.Result) {
	r.t.Helper()
	r.runner.finish(r.one(), result)
	r.step(30 * time.Second)
}

// write notes the status to write as written.
func (r *rig) write(p *v1alpha1.ProxyProbe) statusWrite {
	r.t.Helper()
	rep, ok := r.runner.statusToWrite(keyOf(p))
	require.True(r.t, ok, "nothing to write")
	r.runner.statusWritten(rep, "")
	return rep
}

func (r *rig) nothingToWrite(p *v1alpha1.ProxyProbe) {
	r.t.Helper()
	_, ok := r.runner.statusToWrite(keyOf(p))
	require.False(r.t, ok, "something to write")
}

func (r *rig) verdict(p *v1alpha1.ProxyProbe) v1alpha1.Verdict {
	r.t.Helper()
	require.Contains(r.t, r.runner.monitors, keyOf(p))
	return r.runner.monitors[keyOf(p)].health.Verdict
}

// series returns the proxies that have metrics.
func (r *rig) series() []string {
	r.t.Helper()
	families, err := r.reg.Gather()
	require.NoError(r.t, err)
	var names []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "proxy" && strings.HasSuffix(f.GetName(), "_failures_total") {
					names = append(names, l.GetValue())
				}
			}
		}
	}
	return names
}

func good(latency time.Duration) probe.Result {
	return probe.Result{Outcome: probe.Success, Reason: probe.ReasonProbeSucceeded, Message: "fine", Start: epoch(), Latency: latency}
}

func bad(reason probe.Reason) probe.Result {
	return probe.Result{Outcome: probe.Failure, Reason: reason, Message: "not fine", Start: epoch(), Latency: time.Second}
}

func unsure(reason probe.Reason) probe.Result {
	return probe.Result{Outcome: probe.Inconclusive, Reason: reason, Message: "not known", Start: epoch()}
}

// proxyProbeOf returns a ProxyProbe as the API server stores it.
func proxyProbeOf(name string) *v1alpha1.ProxyProbe {
	hc := (*v1alpha1.HealthCheck)(nil).OrDefault()
	return &v1alpha1.ProxyProbe{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       v1alpha1.ProxyProbeSpec{InstanceID: "instance-1", Host: "192.0.2.1", Port: 3128, HealthCheck: &hc},
	}
}

// judged is a ProxyProbe with a verdict on its instance.
func judged(name string, v v1alpha1.Verdict) *v1alpha1.ProxyProbe {
	p := proxyProbeOf(name)
	latency, then := int64(40), metav1.NewTime(epoch().Add(-time.Hour))
	p.Status = v1alpha1.ProxyProbeStatus{
		InstanceID: p.Spec.InstanceID, Verdict: v, LatencyMillis: &latency,
		LastTransitionTime: &then, LastProbeTime: &then, ObservedGeneration: 1,
	}
	return p
}

const target443 = targetName + ":443"

// checkPause is the least time between two direct checks of a probe target.
const checkPause = 5 * time.Second

// control is a rig with direct checks, whose results the test sets.
type control struct {
	*rig
	up        bool                  // the probe target, for direct checks
	reachable func(url string) bool // the same by URL
	asked     []string              // URLs of the direct checks so far

	takes   time.Duration // by a direct check
	running []runningCheck
}

// runningCheck is a direct check that has not ended.
type runningCheck struct {
	outage.StartCheck
	ends time.Time
}

func guarded(t *testing.T, cfg outage.Config) *control {
	t.Helper()
	return &control{rig: rigWith(t, runnerConfig{workers: 1000, rules: cfg}), up: true}
}

func (c *control) directResult(url string) probe.Result {
	if c.reachable == nil && c.up || c.reachable != nil && c.reachable(url) {
		return good(time.Millisecond)
	}
	return bad(probe.ReasonDialFailed)
}

// target returns the state of a probe target that probes failed with.
func (c *control) target(name string) outage.TargetState {
	c.t.Helper()
	require.Contains(c.t, c.runner.outage.Targets(), name)
	return c.runner.outage.Targets()[name]
}

// workedBefore has the direct check of a target known to have worked, as a predecessor's
// status shows it.
func (c *control) workedBefore(target string) {
	c.runner.outage.Announced("the direct check of "+target+" fails too: not fine", c.clock.Now())
}

func (c *control) monitor(p *v1alpha1.ProxyProbe) *monitor {
	c.t.Helper()
	require.Contains(c.t, c.runner.monitors, keyOf(p))
	return c.runner.monitors[keyOf(p)]
}

func usual() outage.Config {
	return outage.Config{DirectCheck: true, TargetHold: 30 * time.Minute, FleetShare: 0.5, FleetHold: 5 * time.Minute}
}

// fleet adds n Healthy proxies. All are due by the next round.
func (c *control) fleet(n int) []*v1alpha1.ProxyProbe {
	c.t.Helper()
	out := make([]*v1alpha1.ProxyProbe, n)
	for i := range out {
		out[i] = judged(fmt.Sprint("p", i), healthy)
		require.NoError(c.t, c.runner.Add(out[i]))
	}
	c.step(30 * time.Second)
	return out
}

// all probes every due proxy with the same result, makes the direct checks that are
// due, and advances to the next interval.
func (c *control) all(r probe.Result) {
	c.t.Helper()
	c.each(func(string) probe.Result { return r })
}

func (c *control) each(result func(name string) probe.Result) {
	c.t.Helper()
	for _, j := range c.handed() {
		c.runner.finish(j, result(j.key.Name))
		c.step(time.Millisecond)
	}
	for range 10 {
		c.checks()
		c.step(3 * time.Second)
	}
}

// checks starts the direct checks that are due, and ends those that took long enough.
func (c *control) checks() {
	c.startChecks()
	now := c.clock.Now()
	ended := c.running
	c.running = nil
	for _, check := range ended {
		if check.ends.After(now) {
			c.running = append(c.running, check)
			continue
		}
		c.runner.checkDone(check.StartCheck, c.directResult(check.HealthCheck.ProbeURL))
	}
}

// startChecks starts the direct checks that are due.
func (c *control) startChecks() {
	now := c.clock.Now()
	started, _ := c.runner.outage.StartChecks(now)
	for _, check := range started {
		c.asked = append(c.asked, check.HealthCheck.ProbeURL)
		c.running = append(c.running, runningCheck{check, now.Add(c.takes)})
	}
}

// endCheck ends the running direct check of a URL with a result.
func (c *control) endCheck(url string, r probe.Result) {
	c.t.Helper()
	i := slices.IndexFunc(c.running, func(check runningCheck) bool { return check.HealthCheck.ProbeURL == url })
	require.GreaterOrEqual(c.t, i, 0, "no direct check of %s is running: %v", url, c.running)
	check := c.running[i]
	c.running = slices.Delete(c.running, i, i+1)
	c.runner.checkDone(check.StartCheck, r)
}

func (c *control) count(v v1alpha1.Verdict) int { return c.runner.verdicts()[v] }

// targetsDown is the gauge of probe targets that are down.
func (c *control) targetsDown() float64 { return testutil.ToFloat64(c.runner.metrics.targetDown) }

// fleetHeld is the gauge of the fleet rule.
func (c *control) fleetHeld() float64 { return testutil.ToFloat64(c.runner.metrics.fleetHeld) }

// writes notes all statuses to write as written, and returns them by reason.
func (c *control) writes(fleet []*v1alpha1.ProxyProbe) map[health.WriteReason][]v1alpha1.ProxyProbeStatus {
	out := map[health.WriteReason][]v1alpha1.ProxyProbeStatus{}
	for _, p := range fleet {
		if rep, ok := c.runner.statusToWrite(keyOf(p)); ok {
			c.runner.statusWritten(rep, "")
			out[rep.reason] = append(out[rep.reason], rep.status)
		}
	}
	return out
}

func works() probe.Result {
	r := good(40 * time.Millisecond)
	r.Target = target443
	return r
}

// fails is a failure that names its probe target.
func fails(reason probe.Reason) probe.Result {
	r := bad(reason)
	r.Target = target443
	return r
}

const targetName = "target.invalid"

// scene is a CONNECT proxy in front of a TLS target, and its ProxyProbe.
type scene struct {
	ca     *probetest.CA
	proxy  *probetest.Proxy
	works  probetest.Behaviour
	probe  *v1alpha1.ProxyProbe
	outage outage.Config
}

func newScene(t *testing.T, name string) *scene {
	t.Helper()
	ca := probetest.NewCA(t)
	target := probetest.ServeTLS(t, ca.Certificate(t, targetName, time.Now().Add(time.Hour)), probetest.Status(204))
	works := probetest.Forward(probetest.To(target.Addr))
	return newSceneAt(t, name, ca, works)
}

func newSceneAt(t *testing.T, name string, ca *probetest.CA, works probetest.Behaviour) *scene {
	t.Helper()
	s := &scene{ca: ca, proxy: probetest.StartProxy(t, works), works: works, probe: proxyProbeOf(name)}
	s.probe.Spec.Host, s.probe.Spec.Port = s.proxy.Host(), s.proxy.Port()
	s.probe.Spec.HealthCheck.ProbeURL = "https://" + targetName + "/"
	return s
}

// shared is the API server of the tests that need a real one.
var shared controlplanetest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	err := errors.Join(shared.Stop(), goleak.Find())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// allIdle expects that no worker is busy.
func (r *rig) allIdle() {
	r.t.Helper()
	busy, slow := r.runner.due.Busy()
	require.Zero(r.t, busy)
	require.Zero(r.t, slow)
}
