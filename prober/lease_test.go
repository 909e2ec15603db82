package prober

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func newHeartbeat(clk *clocktesting.FakeClock, objects ...runtime.Object) (*heartbeat, *fake.Clientset) {
	client := fake.NewClientset(objects...)
	return &heartbeat{
		leases:  client.CoordinationV1().Leases("system"),
		shard:   v1alpha1.Shard{Index: 1, Count: 2},
		holder:  "prober-abc",
		alive:   func() error { return nil },
		clock:   clk,
		metrics: newMetrics(prometheus.NewRegistry()),
		log:     quiet(),
	}, client
}

func lease(t *testing.T, client *fake.Clientset) *coordinationv1.Lease {
	t.Helper()
	l, err := client.CoordinationV1().Leases("system").Get(t.Context(), "prober-1-of-2", metav1.GetOptions{})
	require.NoError(t, err)
	return l
}

func TestTheLeaseIsMadeAndRenewed(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch())
	h, client := newHeartbeat(clk)
	assert.Equal(t, renewEvery, h.beat(t.Context()))
	l := lease(t, client)
	assert.Equal(t, map[string]string{v1alpha1.LabelProberShard: "1-of-2"}, l.Labels)
	assert.Equal(t, "prober-abc", *l.Spec.HolderIdentity)
	assert.True(t, l.Spec.AcquireTime.Time.Equal(epoch()))
	assert.True(t, l.Spec.RenewTime.Time.Equal(epoch()))
	assert.Equal(t, int32(60), *l.Spec.LeaseDurationSeconds)
	assert.Nil(t, l.Spec.LeaseTransitions)

	clk.Step(renewEvery)
	assert.Equal(t, renewEvery, h.beat(t.Context()))
	l = lease(t, client)
	assert.True(t, l.Spec.AcquireTime.Time.Equal(epoch()), "held by the same process")
	assert.True(t, l.Spec.RenewTime.Time.Equal(epoch().Add(renewEvery)))

	h.holder = "prober-def"
	h.beat(t.Context())
	l = lease(t, client)
	assert.Equal(t, "prober-def", *l.Spec.HolderIdentity)
	assert.True(t, l.Spec.AcquireTime.Time.Equal(epoch().Add(renewEvery)))
	assert.Equal(t, int32(1), *l.Spec.LeaseTransitions)
	assert.InDelta(t, float64(epoch().Add(renewEvery).Unix()), testutil.ToFloat64(h.metrics.renewed), 0)
}

func TestALeaseThatLostItsLabelGetsItBack(t *testing.T) {
	h, client := newHeartbeat(clocktesting.NewFakeClock(epoch()),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "prober-1-of-2", Labels: map[string]string{"kept": "yes"}}})
	h.beat(t.Context())
	assert.Equal(t, map[string]string{v1alpha1.LabelProberShard: "1-of-2", "kept": "yes"}, lease(t, client).Labels)
}

func TestAProberThatDoesNotWorkDoesNotRenew(t *testing.T) {
	h, client := newHeartbeat(clocktesting.NewFakeClock(epoch()))
	h.alive = func() error { return errors.New("frozen") }
	assert.Equal(t, renewRetry, h.beat(t.Context()))
	assert.Empty(t, client.Actions())
	assert.InDelta(t, 1, testutil.ToFloat64(h.metrics.renewals.WithLabelValues("withheld")), 0)
}

func TestAFailedRenewalIsRetriedSoon(t *testing.T) {
	for _, verb := range []string{"get", "create", "update"} {
		h, client := newHeartbeat(clocktesting.NewFakeClock(epoch()))
		if verb == "update" {
			h.beat(t.Context())
		}
		client.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("no API server")
		})
		assert.Equal(t, renewRetry, h.beat(t.Context()), verb)
		assert.InDelta(t, 1, testutil.ToFloat64(h.metrics.renewals.WithLabelValues("failure")), 0)
	}
}

// The whole of it: a scheduler that stops must stop the renewals, and one that
// goes on again must resume them.
func TestAFrozenSchedulerLetsTheLeaseLapse(t *testing.T) {
	r := newRig(t, 1)
	h, client := newHeartbeat(r.clock)
	h.alive = r.engine.alive
	require.NoError(t, r.engine.Replace(nil, "1"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.run(ctx) }()
	defer func() {
		cancel()
		assert.NoError(t, <-done)
	}()
	renewals := func() (n int) {
		for _, a := range client.Actions() {
			if a.GetVerb() == "create" || a.GetVerb() == "update" {
				n++
			}
		}
		return n
	}
	pass := func(seconds int, working bool) {
		for range seconds {
			if working {
				r.none()
			}
			eventually(t, r.clock.HasWaiters, "the heartbeat waits")
			r.step(time.Second)
		}
	}
	pass(10, true)
	eventually(t, func() bool { return renewals() == 1 }, "renewed")
	pass(60, true)
	eventually(t, func() bool { return renewals() >= 4 }, "renewed each 15 s")
	pass(120, false)
	frozen := renewals()
	assert.LessOrEqual(t, frozen, 8, "not for long after the scheduler was last seen")
	pass(120, false)
	assert.Equal(t, frozen, renewals())
	pass(20, true)
	eventually(t, func() bool { return renewals() > frozen }, "resumed")
}
