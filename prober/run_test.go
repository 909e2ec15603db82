package prober

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// running runs the rig's engine until stop is called.
func running(t *testing.T, r *rig, check checkFunc) (stop func()) {
	t.Helper()
	r.engine.check = check
	r.engine.pending = func(types.NamespacedName) {} // the rig's counts on one goroutine
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.engine.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func TestRunProbesByTheClock(t *testing.T) {
	r := newRig(t, 4)
	var probes atomic.Int64
	running(t, r, func(context.Context, job) probe.Result {
		probes.Add(1)
		return good(time.Millisecond)
	})
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		require.NoError(t, r.engine.Add(proxyProbeOf(name)))
	}
	eventually(t, func() bool { return probes.Load() == 6 }, "all at once, with fewer workers")
	for n := int64(12); n <= 24; n += 6 {
		stepEngine(t, r, func() bool { return probes.Load() >= n })
	}
}

// stepEngine moves the clock on, second by second, until the condition holds.
func stepEngine(t *testing.T, r *rig, condition func() bool) {
	t.Helper()
	eventually(t, func() bool {
		if condition() {
			return true
		}
		if r.clock.HasWaiters() {
			r.step(time.Second)
		}
		return false
	}, "in time")
}

func TestASlowProxyHoldsOneWorkerOnly(t *testing.T) {
	r := newRig(t, 2)
	release := make(chan struct{})
	var others atomic.Int64
	running(t, r, func(ctx context.Context, j job) probe.Result {
		if j.key.Name == "slow" {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return bad(probe.ReasonConnectTimeout)
		}
		others.Add(1)
		return good(time.Millisecond)
	})
	require.NoError(t, r.engine.Add(proxyProbeOf("slow")))
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, r.engine.Add(proxyProbeOf(name)))
	}
	stepEngine(t, r, func() bool { return others.Load() >= 9 })
	close(release)
}

func TestTheEndCutsProbesOff(t *testing.T) {
	r := newRig(t, 3)
	var inFlight, cut atomic.Int64
	stop := running(t, r, func(ctx context.Context, _ job) probe.Result {
		inFlight.Add(1)
		<-ctx.Done()
		cut.Add(1)
		return unsure(probe.ReasonCanceled)
	})
	for _, name := range []string{"a", "b", "c", "d"} {
		require.NoError(t, r.engine.Add(proxyProbeOf(name)))
	}
	eventually(t, func() bool { return inFlight.Load() == 3 }, "in flight")
	stop()
	// The fourth may have got the worker of a probe that was cut off.
	assert.Equal(t, inFlight.Load(), cut.Load())
	for _, p := range []string{"a", "b", "c", "d"} {
		r.nothingToWrite(proxyProbeOf(p))
	}
}
