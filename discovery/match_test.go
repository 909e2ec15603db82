package discovery

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/memory"
)

// TestMatchLosesNoProxy: whatever state proxies are in, each that matches is
// either a candidate or counted once as something else, and the refusal names
// every number that is not 0.
func TestMatchLosesNoProxy(t *testing.T) {
	phases := []v1alpha1.Phase{"", v1alpha1.PhaseProvisioning, v1alpha1.PhaseProbing, v1alpha1.PhaseReady, v1alpha1.PhaseReady, v1alpha1.PhaseUnhealthy, v1alpha1.PhaseReplacing, v1alpha1.PhaseFailed}
	fresh := fleet.NewFreshness([]fleet.Renewal{{Shard: v1alpha1.Shard{Index: 0, Count: 2}, At: testStart}}, testStart, time.Minute)
	for range 200 {
		var snap fleet.Snapshot
		snap.Freshness = fresh
		matching := 0
		for i := range rand.IntN(30) {
			p := aProxy(fmt.Sprintf("p-%02d", i), inPhase(phases[rand.IntN(len(phases))]), withMaxLeases(rand.IntN(3)), withAttr("geo", []string{"eu", "us"}[rand.IntN(2)]))
			p.Generation, p.Deleting = int64(1+rand.IntN(2)), rand.IntN(8) == 0
			snap.Proxies = append(snap.Proxies, p)
			if p.Attributes["geo"] == "eu" {
				matching++
			}
		}
		m := match(snap, acquireRequest{Request: lease.Request{Selector: map[string]string{"geo": "eu"}}})
		c := m.counts
		refused := c.Unhealthy + c.Stale + c.NotReady + c.Disabled
		require.LessOrEqual(t, refused, matching)
		stats := lease.Stats{Considered: matching - refused, AtCapacity: matching - refused, CapacityFreeAt: testStart.Add(time.Minute)}
		refusal := classify(m.refuse(stats, acquireRequest{}, testStart))
		assert.Equal(t, matching, refusal.counts.Considered)
		for n, word := range map[int]string{c.Unhealthy: "unhealthy", c.Stale: "stale verdict", c.NotReady: "not ready", c.Disabled: "switched off"} {
			if n > 0 {
				assert.Contains(t, refusal.detail, fmt.Sprintf("%d ", n))
				assert.True(t, strings.Contains(refusal.detail, word), "%q lacks %q", refusal.detail, word)
			}
		}
	}
}

// BenchmarkGrant matches a selector and grants and releases a lease, as one
// request does between its decoding and its encoding. A tenth of the fleet is
// unhealthy, and selectors take turns.
func BenchmarkGrant(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) {
			snap := fleet.Snapshot{Freshness: fleet.NewFreshness([]fleet.Renewal{{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: testStart}}, testStart, time.Minute)}
			for i := range n {
				p := aProxy(fmt.Sprintf("p-%05d", i), withMaxLeases(5), withAttr("group", fmt.Sprint(i%50)))
				if i%10 == 0 {
					p.Phase = v1alpha1.PhaseUnhealthy
				}
				snap.Proxies = append(snap.Proxies, p)
			}
			store := memory.New(clock.RealClock{}, time.Minute)
			still := stillFleet{snap}
			s := &Server{fleet: still, store: store, offers: newOffers(still, store), clock: clock.RealClock{}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req := acquireRequest{Request: lease.Request{Selector: map[string]string{"group": fmt.Sprint(1 + i%9)}, TTL: time.Minute, Target: "example.com"}}
				g, err := s.grant(b.Context(), req)
				if err != nil {
					b.Fatal(err)
				}
				_ = store.Release(b.Context(), g.lease.ID)
			}
		})
	}
}

// stillFleet does not change.
type stillFleet struct{ snap fleet.Snapshot }

func (f stillFleet) Snapshot() (fleet.Snapshot, error) { return f.snap, nil }
func (f stillFleet) Changed() <-chan struct{}          { return nil }
