package prober

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func TestANewProxyIsProbedAtOnceThenEachInterval(t *testing.T) {
	r := newRig(t, 8)
	require.NoError(t, r.engine.Add(proxyProbeOf("a")))
	j := r.one()
	assert.Equal(t, "192.0.2.1", j.order.host)
	assert.Equal(t, int32(3128), j.order.port)
	r.step(time.Second)
	r.engine.finish(j, good(time.Second))

	r.step(21 * time.Second)
	r.none()
	r.step(500 * time.Millisecond) // 30 s less the spread of 7.5 s
	r.engine.finish(r.one(), good(time.Second))
	for range 3 {
		r.step(30*time.Second - time.Millisecond)
		r.none()
		r.step(time.Millisecond)
		r.engine.finish(r.one(), good(time.Second))
	}
}

func TestAVerdictFromBeforeIsKeptAndProbedAtARandomTime(t *testing.T) {
	for _, v := range []v1alpha1.Verdict{healthy, unhealthy} {
		r := newRig(t, 8)
		p := judged("a", v)
		require.NoError(t, r.engine.Add(p))
		assert.Equal(t, v, r.verdict(p))
		r.none()
		r.nothingToWrite(p)
		r.step(15 * time.Second) // half the interval, by the rig's jitter
		j := r.one()

		r.engine.finish(j, bad(probe.ReasonDialFailed))
		assert.Equal(t, v, r.verdict(p), "a flip needs a full run after a restart as well")
		r.nothingToWrite(p)
	}
}

func TestAVerdictOnAnotherInstanceCountsForNothing(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Status.InstanceID = "instance-0"
	require.NoError(t, r.engine.Add(p))
	r.one()
	assert.Empty(t, r.verdict(p))
}

func TestAnotherInstanceStartsAfresh(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ProxyProbeSpec){
		"instanceID": func(s *v1alpha1.ProxyProbeSpec) { s.InstanceID = "instance-2" },
		"host":       func(s *v1alpha1.ProxyProbeSpec) { s.Host = "192.0.2.2" },
		"port":       func(s *v1alpha1.ProxyProbeSpec) { s.Port = 3129 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 8)
			p := proxyProbeOf("a")
			require.NoError(t, r.engine.Add(p))
			r.round(good(time.Millisecond))
			r.write(p)
			r.round(bad(probe.ReasonDialFailed))
			r.round(bad(probe.ReasonDialFailed))
			r.step(-20 * time.Second) // nothing is due

			moved := p.DeepCopy()
			moved.Generation++
			change(&moved.Spec)
			require.NoError(t, r.engine.Update(moved))
			assert.Empty(t, r.verdict(p), "unknown again")
			r.nothingToWrite(p)
			r.engine.finish(r.one(), bad(probe.ReasonDialFailed))
			assert.Empty(t, r.verdict(p), "the failures of the old instance do not count")
			r.nothingToWrite(p)
		})
	}
}

func TestAnInstanceThatChangesUnderAProbe(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	old := r.one()

	moved := p.DeepCopy()
	moved.Spec.InstanceID = "instance-2"
	require.NoError(t, r.engine.Update(moved))
	require.Error(t, old.ctx.Err(), "cut off")
	r.none() // never two probes of one proxy
	r.engine.finish(old, good(time.Millisecond))
	assert.Empty(t, r.verdict(p), "the result is about the old instance")

	j := r.one()
	assert.Equal(t, "instance-2", j.order.instanceID)
	r.engine.finish(j, good(time.Millisecond))
	assert.Equal(t, "instance-2", r.write(p).status.InstanceID)
}

func TestAnEditedHealthCheckKeepsVerdictAndCounters(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.engine.Add(p))
	r.step(time.Minute)
	r.round(bad(probe.ReasonDialFailed))

	edited := p.DeepCopy()
	edited.Generation = 2
	edited.Spec.HealthCheck.FailureThreshold = 2
	edited.Spec.HealthCheck.ProbeURL = "https://other.example/"
	edited.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "secret"}
	require.NoError(t, r.engine.Update(edited))
	assert.Equal(t, healthy, r.verdict(p))
	j := r.one()
	assert.Equal(t, "https://other.example/", j.order.healthCheck.ProbeURL)
	assert.Equal(t, "secret", j.order.secret)
	r.engine.finish(j, bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p), "the failure before the edit counted")
	assert.Equal(t, int64(2), r.write(p).status.ObservedGeneration)
}

func TestAnEditedIntervalCountsFromTheLastProbe(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Hour}
	require.NoError(t, r.engine.Add(p))
	r.step(time.Hour)
	r.engine.finish(r.one(), good(40*time.Millisecond))

	interval := func(d time.Duration) {
		edited := p.DeepCopy()
		edited.Spec.HealthCheck.Interval = metav1.Duration{Duration: d}
		require.NoError(t, r.engine.Update(edited))
	}
	interval(time.Minute)
	r.step(59 * time.Second)
	r.none()
	r.step(time.Second)
	r.engine.finish(r.one(), good(40*time.Millisecond))
	interval(2 * time.Minute)
	r.step(119 * time.Second)
	r.none()
	r.step(time.Second)
	r.one()
}

func TestAnEditedIntervalBeforeTheFirstProbeAfterARestart(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Hour}
	require.NoError(t, r.engine.Add(p)) // due in half an hour
	edited := p.DeepCopy()
	edited.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Minute}
	require.NoError(t, r.engine.Update(edited))
	r.step(time.Minute)
	r.one()
}

func TestOurOwnStatusWriteChangesNothing(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	r.round(good(time.Millisecond))
	r.step(-20 * time.Second)
	seen := p.DeepCopy()
	seen.ResourceVersion, seen.Status = "2", r.write(p).status
	require.NoError(t, r.engine.Update(seen))
	r.none()
	assert.Equal(t, healthy, r.verdict(p))
	r.nothingToWrite(p)
}

func TestBusyWorkersLeaveTheRestDue(t *testing.T) {
	r := newRig(t, 2)
	for _, name := range []string{"a", "b", "c", "d"} {
		require.NoError(t, r.engine.Add(proxyProbeOf(name)))
	}
	first := r.handed()
	require.Len(t, first, 2)
	r.step(time.Second)
	r.none()
	r.engine.finish(first[0], good(time.Millisecond))
	second := r.one()
	assert.NotEqual(t, first[0].key, second.key, "who waited longest")
	r.engine.finish(first[1], good(time.Millisecond))
	r.engine.finish(second, good(time.Millisecond))
	assert.Len(t, r.handed(), 1)
}

func TestAProbeSlowerThanItsIntervalIsFollowedAtOnce(t *testing.T) {
	r := newRig(t, 8)
	require.NoError(t, r.engine.Add(proxyProbeOf("a")))
	j := r.one()
	r.step(2 * time.Minute)
	r.none()
	r.engine.finish(j, bad(probe.ReasonConnectTimeout))
	r.one()
	r.none()
}

func TestAProxyThatGoesIsForgotten(t *testing.T) {
	r := newRig(t, 8)
	a, b := proxyProbeOf("a"), proxyProbeOf("b")
	require.NoError(t, r.engine.Replace([]any{a, b}, "1"))
	assert.ElementsMatch(t, []string{"crawl/a", "crawl/b"}, r.series())
	jobs := r.handed()
	require.Len(t, jobs, 2)

	require.NoError(t, r.engine.Delete(a))
	assert.Equal(t, []string{"crawl/b"}, r.series())
	for _, j := range jobs {
		assert.Equal(t, j.key == keyOf(a), j.ctx.Err() != nil, "the probe of the one that went is cut off")
		r.engine.finish(j, bad(probe.ReasonDialFailed))
	}
	assert.Equal(t, []string{"crawl/b"}, r.series(), "a late result brings no series back")
	r.nothingToWrite(a)

	dying := b.DeepCopy()
	dying.DeletionTimestamp = &metav1.Time{Time: epoch()}
	require.NoError(t, r.engine.Update(dying))
	assert.Empty(t, r.series())
	r.step(time.Hour)
	r.none()
	assert.Zero(t, r.engine.busy)
}

func TestAListPrunesWhatIsNotInIt(t *testing.T) {
	r := newRig(t, 8)
	require.Error(t, r.engine.ready())
	require.NoError(t, r.engine.Replace([]any{proxyProbeOf("a"), proxyProbeOf("b")}, "1"))
	require.NoError(t, r.engine.ready())
	require.NoError(t, r.engine.Replace([]any{proxyProbeOf("b"), proxyProbeOf("c")}, "2"))
	assert.ElementsMatch(t, []string{"crawl/b", "crawl/c"}, r.series())
	require.NoError(t, r.engine.Resync())
	for _, err := range []error{r.engine.Replace([]any{"junk"}, "3"), r.engine.Add("junk"), r.engine.Update(nil), r.engine.Delete(7)} {
		assert.ErrorContains(t, err, "the watch of ProxyProbes brought")
	}
}

func TestANamesakeInheritsNothing(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	old, ok := r.engine.report(keyOf(p))
	require.True(t, ok)

	namesake := proxyProbeOf("a")
	namesake.UID = "another"
	require.NoError(t, r.engine.Update(namesake)) // the watch may have missed the deletion
	assert.Empty(t, r.verdict(namesake))
	r.nothingToWrite(namesake)
	r.engine.written(old) // a write that was under way
	assert.Empty(t, r.engine.targets[keyOf(p)].reported.verdict)
	r.engine.finish(r.one(), good(time.Millisecond))
	assert.Equal(t, types.UID("another"), r.write(namesake).uid)
}

func TestShardsSplitTheFleetByOwner(t *testing.T) {
	controls := true
	owners := map[int]int{}
	for i := range 200 {
		p := proxyProbeOf("a")
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Proxy", Name: "a", UID: types.UID(rune(i)), Controller: &controls}}
		for index := range 3 {
			r := newRig(t, 8)
			r.engine.shard = v1alpha1.Shard{Index: index, Count: 3}
			require.NoError(t, r.engine.Add(p))
			if len(r.engine.targets) == 1 {
				owners[i]++
			}
		}
	}
	require.Len(t, owners, 200, "every proxy has a shard")
	for i, n := range owners {
		require.Equal(t, 1, n, "proxy %d belongs to one shard", i)
	}
	orphan := proxyProbeOf("b")
	assert.Equal(t, orphan.UID, shardUID(orphan))
}

func TestTheSchedulerSleepsUntilSomethingIsDue(t *testing.T) {
	r := newRig(t, 1)
	ctx := context.Background()
	assert.Equal(t, tick, r.engine.dispatch(ctx))
	p := judged("a", healthy)
	require.NoError(t, r.engine.Add(p)) // due in 15 s
	r.step(14*time.Second + 600*time.Millisecond)
	assert.Equal(t, 400*time.Millisecond, r.engine.dispatch(ctx))
	r.step(400 * time.Millisecond)
	assert.Equal(t, tick, r.engine.dispatch(ctx), "the worker is busy: finish wakes the scheduler")
	r.engine.finish(<-r.engine.jobs, good(time.Millisecond))
	assert.Len(t, r.engine.wake, 1)
}

func TestAliveNeedsASyncedWatchAndASchedulerAtWork(t *testing.T) {
	r := newRig(t, 1)
	assert.ErrorContains(t, r.engine.alive(), "not been listed")
	require.NoError(t, r.engine.Replace(nil, "1"))
	assert.ErrorContains(t, r.engine.alive(), "scheduler")
	r.none()
	require.NoError(t, r.engine.alive())
	r.step(frozenAfter)
	require.NoError(t, r.engine.alive())
	r.step(time.Second)
	assert.ErrorContains(t, r.engine.alive(), "scheduler")
}
