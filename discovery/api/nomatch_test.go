package api

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/memory"
)

// Each matching proxy is counted once, in every state, and the message has every
// count that is not 0.
func TestNoMatchCountsEveryProxyOnce(t *testing.T) {
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
		m := countNotOffered(snap, acquireRequest{Request: lease.Request{Selector: map[string]string{"geo": "eu"}}})
		c := m.counts
		refused := c.Unhealthy + c.Stale + c.NotReady + c.Disabled
		require.LessOrEqual(t, refused, matching)
		stats := lease.Stats{Considered: matching - refused, AtCapacity: matching - refused, CapacityFreeAt: testStart.Add(time.Minute)}
		refusal := classify(m.refuse(fresh, stats, acquireRequest{}, testStart))
		assert.Equal(t, matching, refusal.counts.Considered)
		for n, word := range map[int]string{c.Unhealthy: "unhealthy", c.Stale: "stale verdict", c.NotReady: "not ready", c.Disabled: "disabled"} {
			if n > 0 {
				assert.Contains(t, refusal.detail, fmt.Sprintf("%d ", n))
				assert.Contains(t, refusal.detail, word)
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
			s := &Server{cfg: Config{Fleet: still, Store: store, Clock: clock.RealClock{}}, offers: newOffers(still, store)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req := acquireRequest{Request: lease.Request{Selector: map[string]string{"group": fmt.Sprint(1 + i%9)}, TTL: time.Minute, Target: "example.com"}}
				g, err := s.grant(b.Context(), req)
				if err != nil {
					b.Fatal(err)
				}
				_ = store.Release(b.Context(), g.LeaseID)
			}
		})
	}
}

// stillFleet does not change.
type stillFleet struct{ snap fleet.Snapshot }

func (f stillFleet) Snapshot() (fleet.Snapshot, error) { return f.snap, nil }
func (f stillFleet) Changed() <-chan struct{}          { return nil }

// BenchmarkRefusal is a refused request without wait on a fleet without free slots,
// with and without changes of leases in between: the time in the store, and the time
// for the explanation. A tenth of the fleet is unhealthy.
func BenchmarkRefusal(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		snap := fleet.Snapshot{Freshness: fleet.NewFreshness([]fleet.Renewal{{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: testStart}}, testStart, time.Minute)}
		for i := range n {
			p := aProxy(fmt.Sprintf("p-%05d", i), withAttr("group", fmt.Sprint(i%50)))
			if i%10 == 0 {
				p.Phase = v1alpha1.PhaseUnhealthy
			}
			snap.Proxies = append(snap.Proxies, p)
		}
		store := memory.New(clock.RealClock{}, time.Minute)
		still := stillFleet{snap}
		s := &Server{cfg: Config{Fleet: still, Store: store, Clock: clock.RealClock{}}, offers: newOffers(still, store)}
		ask := func(selector map[string]string) (grantBody, error) {
			return s.grant(b.Context(), acquireRequest{Request: lease.Request{Selector: selector, TTL: time.Hour, Target: "example.com"}})
		}
		held := ""
		for {
			g, err := ask(nil)
			if err != nil {
				break
			}
			held = g.LeaseID
		}
		for _, l := range []string{"change", "still"} {
			for name, selector := range map[string]map[string]string{"any": nil, "group": {"group": "7"}} {
				b.Run(fmt.Sprintf("%s/%s/proxies=%d", l, name, n), func(b *testing.B) {
					req := acquireRequest{Request: lease.Request{Selector: selector, TTL: time.Hour, Target: "example.com"}}
					var grant, explain time.Duration
					for i := 0; b.Loop(); i++ {
						if l == "change" {
							if _, err := store.Renew(b.Context(), held, 2*time.Hour+time.Duration(i)*time.Second); err != nil {
								b.Fatal(err)
							}
						}
						t0 := time.Now()
						_, err := s.grant(b.Context(), req)
						t1 := time.Now()
						var none *refused
						if !errors.As(err, &none) {
							b.Fatal(err)
						}
						_ = s.noMatch(none, req)
						grant, explain = grant+t1.Sub(t0), explain+time.Since(t1)
					}
					b.ReportMetric(float64(grant)/float64(b.N), "ns/store")
					b.ReportMetric(float64(explain)/float64(b.N), "ns/explain")
				})
			}
		}
	}
}
