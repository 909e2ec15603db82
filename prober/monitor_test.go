package prober

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func TestChangedInstanceResetsVerdictAndCounters(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ProxyProbeSpec){
		"instanceID": func(s *v1alpha1.ProxyProbeSpec) { s.InstanceID = "instance-2" },
		"host":       func(s *v1alpha1.ProxyProbeSpec) { s.Host = "192.0.2.2" },
		"port":       func(s *v1alpha1.ProxyProbeSpec) { s.Port = 3129 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 8)
			p := proxyProbeOf("a")
			require.NoError(t, r.runner.Add(p))
			r.round(good(time.Millisecond))
			r.write(p)
			r.round(bad(probe.ReasonDialFailed))
			r.round(bad(probe.ReasonDialFailed))
			r.step(-20 * time.Second) // nothing is due

			moved := p.DeepCopy()
			moved.Generation++
			change(&moved.Spec)
			require.NoError(t, r.runner.Update(moved))
			assert.Empty(t, r.verdict(p), "unknown again")
			r.nothingToWrite(p)
			r.runner.finish(r.one(), bad(probe.ReasonDialFailed))
			assert.Empty(t, r.verdict(p), "the failures of the old instance do not count")
			r.nothingToWrite(p)
		})
	}
}

func TestInstanceChangesDuringAProbe(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	old := r.one()

	moved := p.DeepCopy()
	moved.Spec.InstanceID = "instance-2"
	require.NoError(t, r.runner.Update(moved))
	require.Error(t, old.ctx.Err(), "canceled")
	r.none() // never two probes of one proxy
	r.runner.finish(old, good(time.Millisecond))
	assert.Empty(t, r.verdict(p), "the result is about the old instance")

	j := r.one()
	assert.Equal(t, "instance-2", j.spec.instanceID)
	r.runner.finish(j, good(time.Millisecond))
	assert.Equal(t, "instance-2", r.write(p).status.InstanceID)
}

func TestEditedHealthCheckKeepsVerdictAndCounters(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p))
	r.step(time.Minute)
	r.round(bad(probe.ReasonDialFailed))

	edited := p.DeepCopy()
	edited.Generation = 2
	edited.Spec.HealthCheck.FailureThreshold = 2
	edited.Spec.HealthCheck.ProbeURL = "https://other.example/"
	edited.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "secret"}
	require.NoError(t, r.runner.Update(edited))
	assert.Equal(t, healthy, r.verdict(p))
	j := r.one()
	assert.Equal(t, "https://other.example/", j.spec.healthCheck.ProbeURL)
	assert.Equal(t, "secret", j.spec.secret)
	r.runner.finish(j, bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p), "the failure before the edit counted")
	assert.Equal(t, int64(2), r.write(p).status.ObservedGeneration)
}

func TestEditedIntervalCountsFromTheLastProbe(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Hour}
	require.NoError(t, r.runner.Add(p))
	r.step(time.Hour)
	r.runner.finish(r.one(), good(40*time.Millisecond))

	interval := func(d time.Duration) {
		edited := p.DeepCopy()
		edited.Spec.HealthCheck.Interval = metav1.Duration{Duration: d}
		require.NoError(t, r.runner.Update(edited))
	}
	interval(time.Minute)
	r.step(59 * time.Second)
	r.none()
	r.step(time.Second)
	r.runner.finish(r.one(), good(40*time.Millisecond))
	interval(2 * time.Minute)
	r.step(119 * time.Second)
	r.none()
	r.step(time.Second)
	r.one()
}

func TestEditedIntervalBeforeTheFirstProbeAfterARestart(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Hour}
	require.NoError(t, r.runner.Add(p)) // due in half an hour
	edited := p.DeepCopy()
	edited.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Minute}
	require.NoError(t, r.runner.Update(edited))
	r.step(time.Minute)
	r.one()
}

// next advances to the next probe of the only proxy and returns how long that took.
func (r *rig) next(result probe.Result) time.Duration {
	r.t.Helper()
	begun := r.clock.Now()
	for range 4 * 3600 {
		if jobs := r.handed(); len(jobs) == 1 {
			r.runner.finish(jobs[0], result)
			return r.clock.Now().Sub(begun)
		}
		r.step(250 * time.Millisecond)
	}
	r.t.Fatal("no probe in an hour")
	return 0
}

// A Pod whose squid starts a moment after its address is known must not wait for the
// interval, and does not turn Unhealthy.
func TestNewInstanceIsRetriedWithBackoff(t *testing.T) {
	r := newRig(t, 1)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		assert.Equal(t, want, r.next(bad(probe.ReasonDialFailed)), "probe %d", i)
		assert.Empty(t, r.verdict(p), "not called Unhealthy within %s", 10*time.Second)
	}
	r.nothingToWrite(p)
	assert.Equal(t, 8*time.Second, r.next(good(time.Millisecond)))
	assert.Equal(t, healthy, r.verdict(p))
	assert.InDelta(t, 30*time.Second, r.next(bad(probe.ReasonDialFailed)), float64(15*time.Second), "from then on at the interval")
	assert.Equal(t, 30*time.Second, r.next(bad(probe.ReasonDialFailed)), "also when it fails")
}

func TestNewInstanceThatNeverWorksTurnsUnhealthy(t *testing.T) {
	r := newRig(t, 1)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	var took time.Duration
	for r.verdict(p) != unhealthy {
		took += r.next(bad(probe.ReasonDialFailed))
	}
	assert.Equal(t, 15*time.Second, took)
	assert.Equal(t, 16*time.Second, r.next(bad(probe.ReasonDialFailed)))
	assert.InDelta(t, 30*time.Second, r.next(bad(probe.ReasonDialFailed)), float64(15*time.Second))
	assert.Equal(t, 30*time.Second, r.next(bad(probe.ReasonDialFailed)), "and then at the interval")
}

func TestStartupGraceWithAShortInterval(t *testing.T) {
	r := newRig(t, 1)
	p := proxyProbeOf("a")
	p.Spec.HealthCheck.Interval, p.Spec.HealthCheck.FailureThreshold = metav1.Duration{Duration: time.Second}, 2
	require.NoError(t, r.runner.Add(p))
	r.next(bad(probe.ReasonDialFailed))
	r.next(bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p))
}

func TestChangedSchemeIsAnotherInstance(t *testing.T) {
	r := newRig(t, 1)
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p))
	r.next(good(time.Millisecond))
	p = p.DeepCopy()
	p.Spec.Scheme = v1alpha1.SchemeHTTPS
	require.NoError(t, r.runner.Update(p))
	assert.Empty(t, r.verdict(p), "another scheme is another proxy")
	assert.Zero(t, r.next(bad(probe.ReasonProxyTLSFailed)))
	assert.Equal(t, time.Second, r.next(bad(probe.ReasonProxyTLSFailed)))
}

// A stale verdict is not reported as current.
func TestInconclusiveProbesTurnTheVerdictToUnknown(t *testing.T) {
	for _, reason := range []probe.Reason{probe.ReasonProberFault, probe.ReasonResolverFailed, probe.ReasonCredentialsUnavailable, probe.ReasonTargetRefused} {
		for _, before := range []v1alpha1.Verdict{healthy, unhealthy} {
			r := newRig(t, 1)
			p := judged("a", before)
			require.NoError(t, r.runner.Add(p))
			for range health.InconclusiveLimit - 1 {
				r.next(unsure(reason))
				r.next(unsure(probe.ReasonCanceled))
			}
			assert.Equal(t, before, r.verdict(p))
			r.nothingToWrite(p)
			r.next(unsure(reason))
			rep := r.write(p)
			assert.Equal(t, health.Flip, rep.reason)
			assert.Equal(t, unknown, rep.status.Verdict)
			assert.Equal(t, string(reason), rep.status.Reason)
			assert.Equal(t, "not known", rep.status.Message)
			for range 2 * health.InconclusiveLimit {
				r.next(unsure(reason))
			}
			r.nothingToWrite(p)
			r.next(good(time.Millisecond))
			assert.Equal(t, healthy, r.write(p).status.Verdict)
		}
	}
}

func TestClockJumpTurnsNoVerdictToUnknown(t *testing.T) {
	r := newRig(t, 1)
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p))
	r.next(good(time.Millisecond))
	r.step(24 * time.Hour)
	r.next(unsure(probe.ReasonProberFault))
	r.step(24 * time.Hour)
	r.next(unsure(probe.ReasonProberFault))
	assert.Equal(t, healthy, r.verdict(p))
}

// The status of an instance that could never be probed has the reason.
func TestInstanceThatCannotBeProbedIsReportedAsUnknown(t *testing.T) {
	r := newRig(t, 1)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	for range 3 {
		r.nothingToWrite(p)
		r.next(unsure(probe.ReasonCredentialsUnavailable))
	}
	rep := r.write(p)
	assert.Equal(t, health.FirstVerdict, rep.reason)
	assert.Equal(t, unknown, rep.status.Verdict)
	assert.Equal(t, "CredentialsUnavailable", rep.status.Reason)

	again := newRig(t, 1) // another process
	p.Status = rep.status
	require.NoError(t, again.runner.Add(p))
	again.one()
	again.nothingToWrite(p)
}

func TestProbeURLsRotate(t *testing.T) {
	r := newRig(t, 100)
	firsts := map[string]int{}
	for i := range 60 {
		p := proxyProbeOf("p" + strings.Repeat("x", i))
		p.Spec.HealthCheck.ProbeURLs = []v1alpha1.ProbeURL{"https://a.example/", "https://b.example/", "https://c.example/"}
		require.NoError(t, r.runner.Add(p))
	}
	asked := map[string][]string{}
	for range 4 {
		for _, j := range r.handed() {
			asked[j.key.Name] = append(asked[j.key.Name], j.plan.url)
			r.runner.finish(j, good(time.Millisecond))
		}
		r.step(30 * time.Second)
	}
	for name, urls := range asked {
		firsts[urls[0]]++
		require.Len(t, urls, 4, name)
		assert.ElementsMatch(t, []string{"https://a.example/", "https://b.example/", "https://c.example/"}, urls[:3])
		assert.Equal(t, urls[0], urls[3])
	}
	for _, n := range firsts {
		assert.Greater(t, n, 5, "the fleet is spread: %v", firsts)
	}
	assert.Len(t, firsts, 3)
}

func TestOneOfTwoProbeURLsDownKeepsTheVerdict(t *testing.T) {
	r := newRig(t, 1)
	p := judged("a", healthy)
	p.Spec.HealthCheck.ProbeURLs = []v1alpha1.ProbeURL{"https://a.example/", "https://b.example/"}
	require.NoError(t, r.runner.Add(p))
	r.step(30 * time.Second)
	for range 20 {
		j := r.one()
		result := good(time.Millisecond)
		if j.plan.url == "https://a.example/" {
			result = fails(probe.ReasonUpstreamFailed)
		}
		r.runner.finish(j, result)
		r.step(30 * time.Second)
	}
	assert.Equal(t, healthy, r.verdict(p))
}

func TestOpenProxyTestIntervals(t *testing.T) {
	r := newRig(t, 1)
	p := proxyProbeOf("a")
	p.Spec.HealthCheck.OpenProxyTest = true
	p.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
	require.NoError(t, r.runner.Add(p))
	tests := ""
	probeOnce := func(open bool) {
		j := r.one()
		result := good(time.Millisecond)
		result.OpenTested = j.plan.testOpen
		if j.plan.testOpen && open {
			result = bad(probe.ReasonOpenProxy)
			result.OpenTested = true
		}
		r.runner.finish(j, result)
		r.step(30 * time.Second)
		tests += map[bool]string{true: "T", false: "."}[j.plan.testOpen]
	}
	for range 12 {
		probeOnce(false)
	}
	assert.Equal(t, "T.........T.", tests, "with the first success, then every ten intervals")
	tests = ""
	for range 15 {
		probeOnce(true)
	}
	assert.Equal(t, "........TTTTTTT", tests, "and with every probe once it is found open")
	assert.Equal(t, unhealthy, r.verdict(p))
	assert.Equal(t, "OpenProxy", r.write(p).status.Reason)
	probeOnce(false)
	assert.Equal(t, healthy, r.verdict(p))
}

func TestNoOpenProxyTestWithoutCredentials(t *testing.T) {
	r := newRig(t, 1)
	p := proxyProbeOf("a")
	p.Spec.HealthCheck.OpenProxyTest = true
	require.NoError(t, r.runner.Add(p))
	assert.False(t, r.one().plan.testOpen)
}

func leaves(exit string) probe.Result {
	r := good(40 * time.Millisecond)
	r.Exit = netip.MustParseAddr(exit)
	return r
}

func TestExitChangeIsWrittenAfterTwoSightings(t *testing.T) {
	r := newRig(t, 1)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	r.next(leaves("192.0.2.1"))
	assert.Equal(t, "192.0.2.1", r.write(p).status.ExitIP)
	r.step(time.Hour)

	for range 20 { // another one for each request
		r.next(leaves("192.0.2.2"))
		r.next(leaves("192.0.2.3"))
		r.nothingToWrite(p)
	}
	r.next(leaves("192.0.2.3"))
	rep := r.write(p)
	assert.Equal(t, health.ExitChange, rep.reason)
	assert.Equal(t, "192.0.2.3", rep.status.ExitIP)
	r.next(leaves("192.0.2.3"))
	r.nothingToWrite(p)

	again := newRig(t, 1) // another process
	p.Status = rep.status
	require.NoError(t, again.runner.Add(p))
	again.step(time.Hour)
	again.next(leaves("192.0.2.3"))
	again.nothingToWrite(p)
}

func TestExitIsWrittenWhenExitProofIsTurnedOn(t *testing.T) {
	r := newRig(t, 1)
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p))
	r.next(good(40 * time.Millisecond))
	r.nothingToWrite(p)
	r.next(leaves("2001:db8::1"))
	assert.Equal(t, "2001:db8::1", r.write(p).status.ExitIP)
}
