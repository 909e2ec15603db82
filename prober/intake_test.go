package prober

import (
	"context"
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

func (e *engine) instanceOf(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.targets[types.NamespacedName{Namespace: "crawl", Name: name}]
	if !ok {
		return ""
	}
	return t.order.instanceID
}

func TestTheWatchFillsTheEngine(t *testing.T) {
	r, source := newRig(t, 8), cachetesting.NewFakeControllerSource()
	source.Add(proxyProbeOf("a"))
	source.Add(proxyProbeOf("b"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow(ctx, source, r.engine)
	}()
	defer func() {
		cancel()
		source.Shutdown()
		<-done
	}()
	eventually(t, func() bool { return r.engine.ready() == nil }, "listed")
	assert.Len(t, r.engine.keys(), 2)

	source.Add(proxyProbeOf("c"))
	moved := proxyProbeOf("a")
	moved.Spec.InstanceID = "instance-2"
	source.Modify(moved)
	source.Delete(proxyProbeOf("b"))
	eventually(t, func() bool {
		return r.engine.instanceOf("a") == "instance-2" && r.engine.instanceOf("b") == "" && r.engine.instanceOf("c") != ""
	}, "followed")

	// What is missed while the watch is broken comes with the next list.
	source.DeleteDropWatch(proxyProbeOf("c"))
	source.AddDropWatch(proxyProbeOf("d"))
	source.ResetWatch()
	eventually(t, func() bool { return r.engine.instanceOf("c") == "" && r.engine.instanceOf("d") != "" }, "listed again")
}

func TestAListIsCollectedWithoutWhatNobodyNeeds(t *testing.T) {
	r, p := newRig(t, 8), judged("a", healthy)
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "metacontroller"}}
	p.Labels, p.Annotations, p.Status.Message = map[string]string{"a": "b"}, map[string]string{"c": "d"}, "fine"
	out, err := r.engine.Transformer()(p)
	require.NoError(t, err)
	assert.Equal(t, judged("a", healthy), out)
	out, err = r.engine.Transformer()("junk")
	require.NoError(t, err)
	assert.Equal(t, "junk", out)
}

// An API server that is away must not hold up the end of the process.
func TestTheWatchDoesNotSleepThroughTheEnd(t *testing.T) {
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
	assert.Zero(t, r.engine.due.busy)
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
	r.engine.written(old, "") // a write that was under way
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
