package prober

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// standby is a rig whose runner does not lead.
func standby(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, 8)
	r.runner.leading = false
	return r
}

// seen is p as the watch returns it with another status.
func seen(p *v1alpha1.ProxyProbe, v v1alpha1.Verdict, version string) *v1alpha1.ProxyProbe {
	out := judged(p.Name, v)
	out.UID, out.ResourceVersion = p.UID, version
	return out
}

func TestStandbyWatchesAndDoesNotProbe(t *testing.T) {
	r := standby(t)
	fresh, old := proxyProbeOf("fresh"), judged("old", healthy)
	require.NoError(t, r.runner.Replace([]any{fresh, old}, "1"))
	for range 100 {
		r.none()
		r.step(time.Second)
	}
	require.NoError(t, r.runner.alive(), "it could take over")
	assert.False(t, r.runner.leads())

	r.runner.takeOver()
	assert.True(t, r.runner.leads())
	assert.Equal(t, "fresh", r.one().key.Name, "what has no verdict is due at once")
	r.step(5 * time.Second) // the old one was due at 15 s, 45 s, ...
	assert.Equal(t, "old", r.one().key.Name, "what was missed is not made up for")
	assert.Equal(t, healthy, r.verdict(old))
}

func TestStandbyFollowsVerdictsOfTheLeader(t *testing.T) {
	r, p := standby(t), proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	assert.Empty(t, r.verdict(p))
	require.NoError(t, r.runner.Update(seen(p, healthy, "2")))
	require.NoError(t, r.runner.Update(seen(p, unhealthy, "3")))
	assert.Equal(t, unhealthy, r.verdict(p))

	r.runner.takeOver()
	r.nothingToWrite(p)
	r.step(30 * time.Second)
	r.runner.finish(r.one(), bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p))
	r.nothingToWrite(p)
	r.step(30 * time.Second)
	r.runner.finish(r.one(), good(time.Millisecond))
	assert.Equal(t, healthy, r.verdict(p))
	assert.Equal(t, health.Flip, r.write(p).reason)
}

// The predecessor wrote a flip just before it ended, and the watch returns it after the
// takeover. Without reconciling, the successor's verdict would never be written.
func TestTakeOverReconcilesALateStatusOfThePredecessor(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.ResourceVersion = "1"
	require.NoError(t, r.runner.Add(p))
	r.step(15 * time.Second)
	r.round(bad(probe.ReasonDialFailed))
	require.NoError(t, r.runner.Update(seen(p, unhealthy, "2")))
	assert.Equal(t, unhealthy, r.verdict(p))
	r.nothingToWrite(p)
	r.round(good(time.Millisecond))
	assert.Equal(t, healthy, r.verdict(p))
	assert.Equal(t, health.Flip, r.write(p).reason)
}

func TestOwnWritesInTheWatchBeforeAndAfterTheResponse(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.ResourceVersion = "1"
	require.NoError(t, r.runner.Add(p))
	r.step(15 * time.Second)
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	rep, ok := r.runner.statusToWrite(keyOf(p))
	require.True(t, ok)
	require.NoError(t, r.runner.Update(seen(p, unhealthy, "3")), "before the answer to the write")
	r.runner.statusWritten(rep, "3")
	assert.Equal(t, unhealthy, r.verdict(p))
	r.nothingToWrite(p)

	require.NoError(t, r.runner.Update(seen(p, healthy, "2")), "an event from before")
	assert.Equal(t, unhealthy, r.verdict(p))
	r.nothingToWrite(p)

	require.NoError(t, r.runner.Update(seen(p, healthy, "4")), "another process")
	assert.Equal(t, healthy, r.verdict(p))
	r.runner.statusWritten(rep, "3")
	assert.Equal(t, healthy, r.runner.reportedVerdict(p), "an answer that took long")
}

func TestMissingStatusIsWrittenAgain(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p))
	require.NoError(t, r.runner.Update(proxyProbeOf("a")))
	assert.Equal(t, healthy, r.verdict(p))
	r.step(15 * time.Second)
	r.runner.finish(r.one(), good(time.Millisecond))
	assert.Equal(t, health.FirstVerdict, r.write(p).reason)
}

func TestEditKeepsAPendingVerdict(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p))
	r.step(15 * time.Second)
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	require.NoError(t, r.runner.Update(seen(p, healthy, "2")), "what the API server still has")
	assert.Equal(t, unhealthy, r.verdict(p))
	assert.Equal(t, health.Flip, r.write(p).reason)
}

func TestStandDownCancelsProbesAndDropsUnwrittenVerdicts(t *testing.T) {
	r := newRig(t, 8)
	a, b := judged("a", healthy), proxyProbeOf("b")
	require.NoError(t, r.runner.Add(a))
	r.step(15 * time.Second)
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	require.NoError(t, r.runner.Add(b))
	jobs := r.handed()
	require.Len(t, jobs, 2)
	r.runner.standDown()
	for _, j := range jobs {
		require.Error(t, j.ctx.Err(), "canceled")
		r.runner.finish(j, unsure(probe.ReasonCanceled))
	}
	r.step(time.Minute)
	r.none()
	r.nothingToWrite(a)
	assert.Equal(t, healthy, r.verdict(a), "the unwritten verdict is dropped")
	assert.Empty(t, r.verdict(b))
	r.runner.standDown()
	r.allIdle()
}

// While the API server is down the leader probes for the grace period.
func TestLeaderContinuesForTheGracePeriodWithoutALease(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p))
	r.step(15 * time.Second)
	r.runner.leaseLost(time.Minute)
	for range 2 {
		r.round(bad(probe.ReasonDialFailed))
	}
	r.runner.takeOver() // the API server is back
	r.round(bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p), "the run went on all the while")
	assert.Equal(t, 1, r.pending[keyOf(p)])
	r.runner.takeOver()
	assert.Equal(t, 2, r.pending[keyOf(p)], "enqueued again with the lease")
	r.write(p)

	r.runner.leaseLost(time.Minute)
	r.step(time.Minute + time.Second)
	r.none()
	assert.False(t, r.runner.leads())
}

// A prober loses its Lease in an outage of the probe target and gets it back. The leader
// in between wrote nothing new: the status that announces the outage is the evidence.
func TestProberThatLeadsAgainInAnOutageKeepsVerdicts(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.fleet(9) // too few for the fleet rule
	c.all(works())
	c.up = false
	for range 2 {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	require.NotEmpty(t, c.writes(fleet)[health.Announcement])
	c.runner.standDown()
	require.Empty(t, c.runner.outage.Targets())
	c.step(2 * outage.TargetIdle)
	c.runner.takeOver()
	for range 5 {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	assert.Equal(t, 9, c.count(healthy))
	assert.Equal(t, 1.0, c.targetsDown())
}

// lease returns a Lease of a prober shard, nil when it is not there.
func (c *cluster) lease(name string) *coordinationv1.Lease {
	c.t.Helper()
	return controlplanetest.Lease(c.t, c.config, "kube-system", name)
}

// statusWrites is the API server's count of successful writes of ProxyProbe.status.
func (c *cluster) statusWrites() (n int) {
	c.t.Helper()
	client, err := kubernetes.NewForConfig(c.config)
	require.NoError(c.t, err)
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(c.t.Context())
	require.NoError(c.t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="proxyprobes"`) &&
			strings.Contains(line, `subresource="status"`) && strings.Contains(line, `verb="PATCH"`) && strings.Contains(line, `code="200"`) {
			value, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]))
			require.NoError(c.t, err, line)
			n += value
		}
	}
	return n
}

// wrote expects that many writes. The API server counts a write after it can be read.
func (c *cluster) wrote(n int, what string) {
	c.t.Helper()
	eventually(c.t, func() bool { return c.statusWrites() >= n }, what)
	assert.Equal(c.t, n, c.statusWrites(), what)
}

func TestLeaseIsRenewedAndReleased(t *testing.T) {
	c, s := newCluster(t), newScene(t, "lease")
	p := c.start(s)
	eventually(t, p.runner.leads, "leads")
	l := c.lease("prober-0-of-1")
	assert.Equal(t, "0-of-1", l.Labels[v1alpha1.LabelProberShard])
	assert.Equal(t, "prober-of-the-test", *l.Spec.HolderIdentity)
	eventually(t, func() bool { return c.lease("prober-0-of-1").Spec.RenewTime.After(l.Spec.RenewTime.Time) }, "renewed")

	p.stop()
	l = c.lease("prober-0-of-1")
	assert.Empty(t, *l.Spec.HolderIdentity, "released")
	assert.WithinDuration(t, time.Now(), l.Spec.RenewTime.Time, patience, "with the time of the last renewal")
	assert.Equal(t, "0-of-1", l.Labels[v1alpha1.LabelProberShard])
}

// A process with a frozen scheduler must let its verdicts become stale.
func TestFrozenSchedulerDoesNotRenewTheLease(t *testing.T) {
	c, s := newCluster(t), newScene(t, "frozen")
	p := c.start(s)
	eventually(t, p.runner.leads, "leads")
	p.runner.mu.Lock() // the scheduler hangs here
	thaw := sync.OnceFunc(p.runner.mu.Unlock)
	defer thaw()
	long := time.Now().Add(-time.Hour)
	p.runner.awake.Store(&long)
	var last time.Time
	assert.Eventually(t, func() bool {
		last = c.lease("prober-0-of-1").Spec.RenewTime.Time
		return !p.mayWrite()
	}, patience, 50*time.Millisecond, "no longer renewed")
	assert.Never(t, func() bool { return c.lease("prober-0-of-1").Spec.RenewTime.After(last) }, time.Second, 100*time.Millisecond)
	thaw()
	assert.Contains(t, c.metric(p, "proxy_operator_prober_lease_renewals_total"), "withheld")
	eventually(t, func() bool { return c.lease("prober-0-of-1").Spec.RenewTime.After(last) }, "resumed")
}

// steady is swift with a threshold that tolerates failures of a busy machine.
func (s *scene) steady() *v1alpha1.ProxyProbe {
	p := s.swift()
	p.Spec.HealthCheck.FailureThreshold = 3
	return p
}

// metric returns a metric family of a process as text.
func (c *cluster) metric(p *process, name string) string {
	c.t.Helper()
	families, err := p.registry.Gather()
	require.NoError(c.t, err)
	for _, f := range families {
		if f.GetName() == name {
			return fmt.Sprint(f.GetMetric())
		}
	}
	return ""
}

// One of two replicas probes, and the other continues after it.
func TestLeaderChangeKeepsVerdicts(t *testing.T) {
	c, s := newCluster(t), newScene(t, "handed-over")
	shard := v1alpha1.Shard{Count: 1}
	first := c.startAs(s, "first", shard, &line{})
	eventually(t, first.runner.leads, "the first leads")
	second := c.startAs(s, "second", shard, &line{})
	before := c.statusWrites()
	c.create(s.steady())
	c.becomes("handed-over", healthy, "ProbeSucceeded")
	eventually(t, func() bool { return second.runner.verdicts()[healthy] == 1 }, "the standby knows the verdict")
	version, begin, seen := c.get("handed-over").ResourceVersion, time.Now(), s.proxy.Seen()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+3 }, "more probes")
	assert.LessOrEqual(t, s.proxy.Seen()-seen, int(time.Since(begin)/time.Second)+2, "by one of them")
	assert.False(t, second.runner.leads())

	first.stop()
	assert.NotEqual(t, "first", *c.lease("prober-0-of-1").Spec.HolderIdentity, "the lease was released, so that the standby need not wait for its expiry")
	eventually(t, second.runner.leads, "the second leads")
	seen = s.proxy.Seen()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+3 }, "more probes")
	assert.Equal(t, version, c.get("handed-over").ResourceVersion)
	c.wrote(before+1, "no write without a transition")

	s.proxy.Set(refuse())
	c.becomes("handed-over", unhealthy, "ConnectRefused")
	c.wrote(before+2, "and one with it")
}

// Only the leader loses its connection to the API server, so that it does not notice
// its successor. Both may probe for a while; one of them writes.
func TestPartitionedLeaderDoesNotWrite(t *testing.T) {
	c, s := newCluster(t), newScene(t, "cut-off")
	shard, firstLine := v1alpha1.Shard{Count: 1}, &line{}
	first := c.startAs(s, "first", shard, firstLine)
	eventually(t, first.runner.leads, "the first leads")
	second := c.startAs(s, "second", shard, &line{})
	before := c.statusWrites()
	c.create(s.steady())
	c.becomes("cut-off", healthy, "ProbeSucceeded")
	eventually(t, func() bool { return second.runner.verdicts()[healthy] == 1 }, "the standby knows the verdict")
	firstLine.cut()
	s.proxy.Set(refuse())
	eventually(t, second.runner.leads, "the second takes over")
	assert.False(t, first.mayWrite(), "before the other may")
	c.becomes("cut-off", unhealthy, "ConnectRefused")
	s.proxy.Set(s.works)
	c.becomes("cut-off", healthy, "ProbeSucceeded")
	c.wrote(before+3, "by the second, after the first verdict")

	firstLine.mend()
	eventually(t, func() bool { return !first.runner.leads() }, "the first sees it")
	seen, begin := s.proxy.Seen(), time.Now()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+3 }, "more probes")
	assert.LessOrEqual(t, s.proxy.Seen()-seen, int(time.Since(begin)/time.Second)+2, "by one of them")
	c.wrote(before+3, "the first one's verdict is not written")
	assert.Equal(t, healthy, c.get("cut-off").Status.Verdict)
	eventually(t, func() bool { return first.runner.verdicts()[healthy] == 1 }, "and it follows the second one's verdict")
}

// The outage outlasts the lease: the leader continues to probe, the standby does not take
// over when the API server is back, and the verdict is written.
func TestLeaderSurvivesALongAPIServerOutage(t *testing.T) {
	c, s := newCluster(t), newScene(t, "long-outage")
	shard := v1alpha1.Shard{Count: 1}
	first := c.startAs(s, "first", shard, c.line)
	eventually(t, first.runner.leads, "the first leads")
	second := c.startAs(s, "second", shard, c.line)
	before := c.statusWrites()
	c.create(s.steady())
	c.becomes("long-outage", healthy, "ProbeSucceeded")
	eventually(t, func() bool { return second.runner.verdicts()[healthy] == 1 }, "the standby knows the verdict")
	c.wrote(before+1, "the first verdict")

	c.line.cut()
	eventually(t, func() bool { return !first.mayWrite() }, "the lease has run out")
	seen := s.proxy.Seen()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+3 }, "more probes")
	s.proxy.Set(refuse())
	eventually(t, func() bool { return first.runner.verdicts()[unhealthy] == 1 }, "known")
	c.line.mend()
	c.becomes("long-outage", unhealthy, "ConnectRefused")
	c.wrote(before+2, "written once")
	assert.True(t, first.runner.leads())
	assert.False(t, second.runner.leads())
}

// The number of shards grows. One of the new shards probes each proxy, and its verdict
// is kept.
func TestReshardingKeepsVerdicts(t *testing.T) {
	const size = 8
	c, s := newCluster(t), newScene(t, "shared")
	proxies := map[string]*probetest.Proxy{}
	writes, before := c.statusWrites(), c.startAs(s, "before", v1alpha1.Shard{Count: 1}, &line{})
	for i := range size {
		p := s.steady().DeepCopy()
		p.Name = fmt.Sprintf("reshard-%d", i)
		proxies[p.Name] = probetest.StartProxy(t, s.works)
		p.Spec.Host, p.Spec.Port = proxies[p.Name].Host(), proxies[p.Name].Port()
		c.create(p)
	}
	versions := map[string]string{}
	for name := range proxies {
		c.becomes(name, healthy, "ProbeSucceeded")
		versions[name] = c.get(name).ResourceVersion
	}
	before.stop()
	seen := map[string]int{}
	for name, p := range proxies {
		seen[name] = p.Seen()
	}

	begin := time.Now()
	parts := []*process{
		c.startAs(s, "left", v1alpha1.Shard{Index: 0, Count: 2}, &line{}),
		c.startAs(s, "right", v1alpha1.Shard{Index: 1, Count: 2}, &line{}),
	}
	for name, p := range proxies {
		eventually(t, func() bool { return p.Seen() >= seen[name]+3 }, name+" is probed on")
	}
	for name, p := range proxies {
		assert.LessOrEqual(t, p.Seen()-seen[name], int(time.Since(begin)/time.Second)+2, "%s by one of them", name)
		assert.Equal(t, versions[name], c.get(name).ResourceVersion)
	}
	c.wrote(writes+size, "the first verdicts")
	assert.Equal(t, size, len(parts[0].runner.allSeries())+len(parts[1].runner.allSeries()))
	assert.NotEmpty(t, parts[0].runner.allSeries())
	assert.NotEmpty(t, parts[1].runner.allSeries())

	for _, p := range proxies {
		p.Set(refuse())
	}
	for name := range proxies {
		c.becomes(name, unhealthy, "ConnectRefused")
	}
	c.wrote(writes+2*size, "a flip each")
	assert.NotNil(t, c.lease("prober-1-of-2"))
}

// The API server counts the writes: a first verdict, a flip, a flip back.
func TestStatusIsWrittenOnTransitionsOnly(t *testing.T) {
	c, s := newCluster(t), newScene(t, "counted")
	c.start(s)
	before := c.statusWrites()
	c.create(s.steady())
	c.becomes("counted", healthy, "ProbeSucceeded")
	probed := func(n int) {
		seen := s.proxy.Seen()
		eventually(t, func() bool { return s.proxy.Seen() >= seen+n }, "more probes")
	}
	probed(2)
	c.wrote(before+1, "the first verdict")
	s.proxy.Set(refuse())
	c.becomes("counted", unhealthy, "ConnectRefused")
	probed(2)
	c.wrote(before+2, "a flip")
	s.proxy.Set(s.works)
	c.becomes("counted", healthy, "ProbeSucceeded")
	probed(1)
	c.wrote(before+3, "a flip back")
}

// With an interval of an hour the verdict can only come from an immediate probe.
func TestNewProxyIsProbedAtOnceDespiteALongInterval(t *testing.T) {
	c, s := newCluster(t), newScene(t, "newcomer")
	p := c.start(s)
	eventually(t, p.runner.leads, "leads")
	spec := s.steady()
	spec.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c.create(spec)
	c.becomes("newcomer", healthy, "ProbeSucceeded")
	require.NoError(t, ctx.Err())
}
