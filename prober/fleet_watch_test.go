package prober

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func (r *runner) instanceOf(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.monitors[types.NamespacedName{Namespace: "crawl", Name: name}]
	if !ok {
		return ""
	}
	return t.spec.instanceID
}

func TestWatchFillsTheRunner(t *testing.T) {
	r, source := newRig(t, 8), cachetesting.NewFakeControllerSource()
	source.Add(proxyProbeOf("a"))
	source.Add(proxyProbeOf("b"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow(ctx, source, r.runner)
	}()
	defer func() {
		cancel()
		source.Shutdown()
		<-done
	}()
	eventually(t, func() bool { return r.runner.ready() == nil }, "listed")
	assert.Len(t, r.runner.allSeries(), 2)

	source.Add(proxyProbeOf("c"))
	moved := proxyProbeOf("a")
	moved.Spec.InstanceID = "instance-2"
	source.Modify(moved)
	source.Delete(proxyProbeOf("b"))
	eventually(t, func() bool {
		return r.runner.instanceOf("a") == "instance-2" && r.runner.instanceOf("b") == "" && r.runner.instanceOf("c") != ""
	}, "synced")

	// Events that a broken watch misses arrive with the next list.
	source.DeleteDropWatch(proxyProbeOf("c"))
	source.AddDropWatch(proxyProbeOf("d"))
	source.ResetWatch()
	eventually(t, func() bool { return r.runner.instanceOf("c") == "" && r.runner.instanceOf("d") != "" }, "listed again")
}

func TestTransformerDropsUnusedFields(t *testing.T) {
	r, p := newRig(t, 8), judged("a", healthy)
	p.Status.Reason = string(probe.ReasonProbeSucceeded)
	want := p.DeepCopy()
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "metacontroller"}}
	p.Labels, p.Annotations, p.Status.Message = map[string]string{"a": "b"}, map[string]string{"c": "d"}, "fine"
	out, err := r.runner.Transformer()(p)
	require.NoError(t, err)
	assert.Equal(t, want, out)
	p.Status.Reason, p.Status.Message = "CredentialsRefused", "setup: no label"
	out, err = r.runner.Transformer()(p)
	require.NoError(t, err)
	assert.Equal(t, "setup: no label", out.(*v1alpha1.ProxyProbe).Status.Message, "to see when it is no longer true")
	out, err = r.runner.Transformer()("junk")
	require.NoError(t, err)
	assert.Equal(t, "junk", out)
}

// An unreachable API server must not delay the shutdown.
func TestWatchBackoffEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	waits := interruptible{ctx: ctx}
	<-waits.After(time.Millisecond)
	long := waits.After(time.Hour)
	select {
	case <-long:
		t.Fatal("an hour was short")
	default:
	}
	cancel()
	<-long
	<-waits.After(time.Hour)
}

func TestDeletedProxyIsRemoved(t *testing.T) {
	r := newRig(t, 8)
	a, b := proxyProbeOf("a"), proxyProbeOf("b")
	require.NoError(t, r.runner.Replace([]any{a, b}, "1"))
	assert.ElementsMatch(t, []string{"crawl/a", "crawl/b"}, r.series())
	jobs := r.handed()
	require.Len(t, jobs, 2)

	require.NoError(t, r.runner.Delete(a))
	assert.Equal(t, []string{"crawl/b"}, r.series())
	for _, j := range jobs {
		assert.Equal(t, j.key == keyOf(a), j.ctx.Err() != nil, "the probe of the deleted proxy is canceled")
		r.runner.finish(j, bad(probe.ReasonDialFailed))
	}
	assert.Equal(t, []string{"crawl/b"}, r.series(), "a late result creates no series")
	r.nothingToWrite(a)

	dying := b.DeepCopy()
	dying.DeletionTimestamp = &metav1.Time{Time: epoch()}
	require.NoError(t, r.runner.Update(dying))
	assert.Empty(t, r.series())
	r.step(time.Hour)
	r.none()
	r.allIdle()
}

func TestReplaceRemovesProxiesThatAreNotListed(t *testing.T) {
	r := newRig(t, 8)
	require.Error(t, r.runner.ready())
	require.NoError(t, r.runner.Replace([]any{proxyProbeOf("a"), proxyProbeOf("b")}, "1"))
	require.NoError(t, r.runner.ready())
	require.NoError(t, r.runner.Replace([]any{proxyProbeOf("b"), proxyProbeOf("c")}, "2"))
	assert.ElementsMatch(t, []string{"crawl/b", "crawl/c"}, r.series())
	require.NoError(t, r.runner.Resync())
	for _, err := range []error{r.runner.Replace([]any{"junk"}, "3"), r.runner.Add("junk"), r.runner.Update(nil), r.runner.Delete(7)} {
		assert.ErrorContains(t, err, "the watch of ProxyProbes returned")
	}
}

func TestNamesakeDoesNotInheritTheVerdict(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	old, ok := r.runner.statusToWrite(keyOf(p))
	require.True(t, ok)

	namesake := proxyProbeOf("a")
	namesake.UID = "another"
	require.NoError(t, r.runner.Update(namesake)) // the watch may have missed the deletion
	assert.Empty(t, r.verdict(namesake))
	r.nothingToWrite(namesake)
	r.runner.statusWritten(old, "") // a write that was under way
	assert.Empty(t, r.runner.monitors[keyOf(p)].health.LastWritten().Verdict)
	r.runner.finish(r.one(), good(time.Millisecond))
	assert.Equal(t, types.UID("another"), r.write(namesake).uid)
}

func TestShardsSplitTheFleetByOwnerUID(t *testing.T) {
	controls := true
	owners := map[int]int{}
	for i := range 200 {
		p := proxyProbeOf("a")
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Proxy", Name: "a", UID: types.UID(rune(i)), Controller: &controls}}
		for index := range 3 {
			r := newRig(t, 8)
			r.runner.shard = v1alpha1.Shard{Index: index, Count: 3}
			require.NoError(t, r.runner.Add(p))
			if len(r.runner.monitors) == 1 {
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

// churn is a fleet that changes at random, with a model of its own.
type churn struct {
	*rig
	random   *rand.Rand
	live     map[types.NamespacedName]*v1alpha1.ProxyProbe
	inFlight map[types.UID]job
	serial   int
}

// No proxy is probed twice at once or forgotten, none stays in schedule and metrics
// after its deletion, and there are never more probes in flight than workers.
func TestFleetWatchUnderRandomChurn(t *testing.T) {
	for seed := range uint64(8) {
		c := &churn{
			rig:      newRig(t, 5),
			random:   rand.New(rand.NewPCG(seed, 2)),
			live:     map[types.NamespacedName]*v1alpha1.ProxyProbe{},
			inFlight: map[types.UID]job{},
		}
		for range 1000 {
			c.change()
			c.dispatch()
			c.check()
		}
		c.drain()
	}
}

func (c *churn) change() {
	name := fmt.Sprint(c.random.IntN(12))
	key := types.NamespacedName{Namespace: "crawl", Name: name}
	p, exists := c.live[key]
	switch c.random.IntN(8) {
	case 0:
		c.create(key)
	case 1:
		if exists {
			require.NoError(c.t, c.runner.Delete(p))
			delete(c.live, key)
		}
	case 2:
		if exists {
			p = p.DeepCopy()
			p.Spec.InstanceID = fmt.Sprintf("instance-%d", c.random.IntN(3))
			c.update(p)
		}
	case 3:
		if exists {
			p = p.DeepCopy()
			p.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Duration(1+c.random.IntN(60)) * time.Second}
			c.update(p)
		}
	case 4, 5:
		c.finishSome()
	default:
		c.step(time.Duration(c.random.IntN(20_000)) * time.Millisecond)
	}
}

func (c *churn) create(key types.NamespacedName) {
	c.serial++
	p := proxyProbeOf(key.Name)
	if c.random.IntN(2) == 0 {
		p = judged(key.Name, healthy)
	}
	p.UID = types.UID(fmt.Sprint(c.serial))
	c.update(p)
}

func (c *churn) update(p *v1alpha1.ProxyProbe) {
	c.live[keyOf(p)] = p
	require.NoError(c.t, c.runner.Update(p))
}

func (c *churn) finishSome() {
	for uid, j := range c.inFlight {
		delete(c.inFlight, uid)
		switch {
		case j.ctx.Err() != nil:
			c.runner.finish(j, unsure(probe.ReasonCanceled))
		case c.random.IntN(3) == 0:
			c.runner.finish(j, bad(probe.ReasonDialFailed))
		default:
			c.runner.finish(j, good(time.Duration(c.random.IntN(900))*time.Millisecond))
		}
		if c.random.IntN(2) == 0 {
			return
		}
	}
}

func (c *churn) dispatch() {
	for _, j := range c.handed() {
		require.NotContains(c.t, c.inFlight, j.monitor.uid, "two probes of one proxy")
		p, ok := c.live[j.key]
		require.True(c.t, ok, "a probe of a deleted proxy")
		require.Equal(c.t, specOf(p), j.spec, "a probe by a stale spec")
		c.inFlight[j.monitor.uid] = j
	}
}

func (c *churn) check() {
	e := c.runner
	require.LessOrEqual(c.t, len(c.inFlight), 5)
	busy, _ := e.due.Busy()
	require.Len(c.t, c.inFlight, busy)
	require.Len(c.t, e.monitors, len(c.live))
	waiting := 0
	for key, t := range e.monitors {
		require.Equal(c.t, c.live[key].UID, t.uid)
		_, probing := c.inFlight[t.uid]
		require.NotEqual(c.t, probing, t.place.Queued(), "either in flight or queued")
		if t.place.Queued() {
			waiting++
			require.LessOrEqual(c.t, t.place.Due.Sub(c.clock.Now()), t.spec.interval(), "not forgotten")
		}
	}
	require.Equal(c.t, waiting, e.due.Waiting())
}

func (c *churn) drain() {
	require.NoError(c.t, c.runner.Replace(nil, ""))
	for len(c.inFlight) > 0 {
		c.finishSome()
	}
	require.Empty(c.t, c.series(), "all series are deleted")
	require.Zero(c.t, c.runner.due.Waiting())
	c.allIdle()
}

// FuzzProxyProbe has the watch return arbitrary objects, including those that the CRD
// forbids: another version of it may be installed, and any client may have written the
// status. The prober neither fails nor probes without pause, and its status fits the CRD.
func FuzzProxyProbe(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"n","name":"a","uid":"u"},"spec":{"instanceID":"i","host":"10.0.0.1","port":3128}}`), []byte(`{}`))
	f.Add([]byte(`{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"},"spec":{"instanceID":"i","host":"h","port":-1,"healthCheck":{"interval":"-1s","timeout":"0s","failureThreshold":-3,"successThreshold":0}},"status":{"instanceID":"i","verdict":"Healthy","latencyMillis":9223372036854775807,"lastProbeTime":"9999-01-01T00:00:00Z","lastTransitionTime":"0001-01-01T00:00:00Z","exitIP":"x"}}`),
		[]byte(`{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"x"},"spec":{"instanceID":"i","host":"h","port":-1},"status":{"instanceID":"i","verdict":"Unhealthy","latencyMillis":-5}}`))
	f.Add([]byte(`{"status":{"verdict":"Maybe"}}`), []byte(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		var first, second v1alpha1.ProxyProbe
		if json.Unmarshal(before, &first) != nil || json.Unmarshal(after, &second) != nil {
			return // the client's decoder rejects it
		}
		r := newRig(t, 4)
		for _, p := range []*v1alpha1.ProxyProbe{&first, &second} {
			require.NoError(t, r.runner.Update(p))
			r.probeAFew(t)
		}
		require.NoError(t, r.runner.Replace(nil, ""))
		require.Empty(t, r.runner.monitors)
	})
}

// probeAFew probes the proxies for an hour, and checks the statuses to write.
func (r *rig) probeAFew(t *testing.T) {
	t.Helper()
	for range 6 {
		r.clock.Step(10 * time.Minute)
		jobs := r.handed()
		require.LessOrEqual(t, len(jobs), 2, "each is probed once at a time")
		for _, j := range jobs {
			require.Positive(t, j.spec.interval())
			require.Positive(t, j.spec.healthCheck.Timeout.Duration)
			r.runner.finish(j, probe.Result{Outcome: probe.Success, Reason: probe.ReasonProbeSucceeded, Start: r.clock.Now(), Latency: time.Millisecond})
		}
		require.Empty(t, r.handed(), "nothing is due again at once")
		for _, m := range r.runner.monitors {
			st := m.health.Status(m.spec.instanceID)
			require.GreaterOrEqual(t, *st.LatencyMillis, int64(0))
			require.Contains(t, []v1alpha1.Verdict{v1alpha1.VerdictHealthy, v1alpha1.VerdictUnhealthy, v1alpha1.VerdictUnknown}, st.Verdict)
			require.LessOrEqual(t, len(st.Message), 4*1024)
		}
	}
}
