package cloud

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// hanging is a cloud whose calls block until their timeout, after one list.
type hanging struct {
	provider.Cloud
	listed  bool
	entered chan struct{}
}

func (h *hanging) hang(ctx context.Context) error {
	h.entered <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) List(ctx context.Context) (provider.Listing, error) {
	if !h.listed {
		h.listed = true
		return h.Cloud.List(ctx)
	}
	return provider.Listing{}, h.hang(ctx)
}

func (h *hanging) Insert(ctx context.Context, _ provider.InsertRequest) (provider.Operation, error) {
	return provider.Operation{}, h.hang(ctx)
}

// A hook's request does not wait for a cloud: all are answered from the cache while
// every call of the adapter hangs.
func TestHooksDoNotWaitForACloudThatHangs(t *testing.T) {
	h := &hanging{Cloud: newMemory("inst"), entered: make(chan struct{}, 100)}
	r := startOn(t, []provider.Named{{Name: "slow", Type: "memory", Cloud: h}})
	put := func(n int) (adapter.Instance, error) {
		name, req := request(n)
		return r.Put(t.Context(), "slow", name, req)
	}
	require.Eventually(t, func() bool { _, err := put(0); return err == nil }, 20*time.Second, time.Millisecond)
	for n := range concurrency { // the limit of calls in flight
		_, err := put(n)
		require.NoError(t, err)
	}
	for range concurrency {
		<-h.entered
	}
	for n := range 2 * concurrency {
		got, err := put(n)
		require.NoError(t, err)
		assert.NotEqual(t, adapter.StateRunning, got.State)
	}
	name, req := request(1)
	got, err := r.Delete(t.Context(), "slow", name, req.UID, "")
	require.NoError(t, err)
	assert.Equal(t, adapter.StateStopping, got.State)
	list, err := r.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, list.Instances, 2*concurrency)
}

// fleet of the benchmark.
const fleet = 200

// BenchmarkPut measures the hook's latency: the 99th percentile of PUT with a Compute
// that takes five seconds for each response, and its ratio to that with an instant
// one. Requests alternate between both, so that the machine's load is the same.
func BenchmarkPut(b *testing.B) {
	slowGCE := gcestandin.New(gcestandin.Options{})
	rigs := [2]*rig{start(b, gcestandin.New(gcestandin.Options{})), start(b, slowGCE)}
	for _, r := range rigs {
		name, req := request(0)
		require.Eventually(b, func() bool {
			_, err := r.Put(b.Context(), "gcp-eu", name, req)
			return err == nil
		}, 20*time.Second, 10*time.Millisecond)
	}
	slowGCE.AddFault(gcestandin.Fault{DelayMillis: 5000})
	putFleet(b, rigs)
	require.Eventually(b, func() bool { return len(rigs[0].gce.VMs()) == fleet }, time.Minute, 20*time.Millisecond, "the instant one is at rest")
	var took [2][]time.Duration
	for b.Loop() {
		one := putFleet(b, rigs)
		for k := range took {
			took[k] = append(took[k], one[k]...)
		}
	}
	var p99 [2]time.Duration
	for k := range took {
		slices.Sort(took[k])
		p99[k] = took[k][len(took[k])*99/100]
	}
	b.ReportMetric(float64(p99[0].Microseconds()), "instant-p99-us")
	b.ReportMetric(float64(p99[1].Microseconds()), "5s-p99-us")
	b.ReportMetric(float64(p99[1])/float64(p99[0]), "ratio")
	slowGCE.ClearFaults()
}

// putFleet sends a PUT for every Proxy to both rigs in turn and returns their
// durations.
func putFleet(b *testing.B, rigs [2]*rig) (took [2][]time.Duration) {
	b.Helper()
	for i := range fleet {
		name, req := request(i)
		for k, r := range rigs {
			begin := time.Now()
			_, err := r.Put(b.Context(), "gcp-eu", name, req)
			took[k] = append(took[k], time.Since(begin))
			require.NoError(b, err)
		}
	}
	return took
}
