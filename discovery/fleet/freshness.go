package fleet

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Renewal is the last renewal of a prober shard's Lease object.
type Renewal struct {
	// Shard of the prober.
	Shard v1alpha1.Shard
	// At is when the prober renewed it, at the latest when our watch saw it.
	At time.Time
}

// Freshness decides which verdicts are stale. A prober writes a verdict only when it
// changes, so that an old verdict is valid while the prober renews its Lease. While
// the number of shards is changed there are Leases of both numbers.
type Freshness struct {
	now      time.Time
	maxAge   time.Duration
	renewals []Renewal // by descending time
	// blind: the watch of the Leases fails, so that later renewals are not seen.
	blind bool
}

// NewFreshness evaluates renewals at the time now: one older than maxAge has lapsed.
// Clock skew between the prober and discovery shifts that moment.
func NewFreshness(renewals []Renewal, now time.Time, maxAge time.Duration) Freshness {
	sorted := slices.Clone(renewals)
	slices.SortFunc(sorted, func(a, b Renewal) int { return b.At.Compare(a.At) })
	return Freshness{now: now, maxAge: maxAge, renewals: sorted}
}

// Fresh reports whether a live prober shard owns the Proxy with this UID.
func (f Freshness) Fresh(proxyUID string) bool {
	for _, r := range f.renewals {
		if !f.alive(r) {
			return false
		}
		if r.Shard.Owns(types.UID(proxyUID)) {
			return true
		}
	}
	return false
}

func (f Freshness) alive(r Renewal) bool { return f.now.Sub(r.At) <= f.maxAge }

// Alive lists the shards with fresh verdicts. While it is the same, Fresh returns the
// same for every UID.
func (f Freshness) Alive() string {
	var names []string
	for _, r := range f.renewals {
		if f.alive(r) {
			names = append(names, r.Shard.String())
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " ")
}

// Shards counts the live and the lapsed shards. The Lease objects of a former number
// of shards stay behind; they do not count as lapsed once all shards of one number are
// alive, so that every UID has a prober.
func (f Freshness) Shards() (alive, lapsed int) {
	living := map[int]map[int]bool{} // indices by count
	for _, r := range f.renewals {
		if !f.alive(r) {
			lapsed++
			continue
		}
		alive++
		if living[r.Shard.Count] == nil {
			living[r.Shard.Count] = map[int]bool{}
		}
		living[r.Shard.Count][r.Shard.Index] = true
	}
	for count, indices := range living {
		if len(indices) == count {
			return alive, 0
		}
	}
	return alive, lapsed
}

// Explain is the reason why Fresh is false.
func (f Freshness) Explain(proxyUID string) string {
	if f.blind {
		return fmt.Sprintf("discovery cannot watch the probers' Leases, its log has the API server's error, and verdicts are stale after %s without one that was renewed", f.maxAge)
	}
	if len(f.renewals) == 0 {
		return "no prober has ever renewed a Lease: is one running?"
	}
	for _, r := range f.renewals {
		if r.Shard.Owns(types.UID(proxyUID)) {
			return fmt.Sprintf("prober shard %s has not renewed its Lease for %s, and verdicts are stale after %s: is it running?",
				r.Shard, f.now.Sub(r.At).Round(time.Second), f.maxAge)
		}
	}
	return fmt.Sprintf("no prober shard owns it, known are %s: is one missing?", f.known())
}

func (f Freshness) known() []v1alpha1.Shard {
	out := make([]v1alpha1.Shard, len(f.renewals))
	for i, r := range f.renewals {
		out[i] = r.Shard
	}
	return out
}

// proberLeases is the store of the Lease objects of prober shards.
type proberLeases struct {
	objectStore[*coordinationv1.Lease]
	clock clock.PassiveClock
	log   *slog.Logger

	mu     sync.Mutex
	byName map[string]proberLease
}

// proberLease is a Renewal with the renewTime of its Lease object.
type proberLease struct {
	Renewal
	renewTime time.Time
}

func newProberLeases(clk clock.PassiveClock, log *slog.Logger, changed *lease.Signal) *proberLeases {
	s := &proberLeases{clock: clk, log: log, byName: map[string]proberLease{}}
	s.changed, s.read = changed, as[*coordinationv1.Lease]("prober leases")
	s.put = func(l *coordinationv1.Lease) {
		s.mu.Lock()
		s.putInto(s.byName, l)
		s.mu.Unlock()
		changed.Broadcast()
	}
	s.remove = func(l *coordinationv1.Lease) {
		s.mu.Lock()
		delete(s.byName, l.Name)
		s.mu.Unlock()
	}
	s.replace = func(list []*coordinationv1.Lease) {
		s.mu.Lock()
		defer s.mu.Unlock()
		byName := make(map[string]proberLease, len(list))
		for _, l := range list {
			s.putInto(byName, l)
		}
		s.byName = byName
	}
	return s
}

func (s *proberLeases) list() []Renewal {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Renewal, 0, len(s.byName))
	for _, r := range s.byName {
		out = append(out, r.Renewal)
	}
	return out
}

// putInto takes the time of renewal from the Lease, but never a future one: if the
// prober's clock is ahead of ours, verdicts would become stale later by as much.
func (s *proberLeases) putInto(byName map[string]proberLease, l *coordinationv1.Lease) {
	shard, err := v1alpha1.ParseLeaseLabel(l.Labels[v1alpha1.LabelProberShard])
	if err != nil || l.Spec.RenewTime == nil {
		s.log.Warn("lease ignored: it names no prober shard or was never renewed", "namespace", l.Namespace, "lease", l.Name, "err", err)
		delete(byName, l.Name)
		return
	}
	r := proberLease{renewTime: l.Spec.RenewTime.Time, Renewal: Renewal{Shard: shard, At: l.Spec.RenewTime.Time}}
	if now := s.clock.Now(); r.At.After(now) {
		r.At = now
	}
	if old, ok := s.byName[l.Name]; ok && old.renewTime.Equal(r.renewTime) {
		r.At = old.At
	}
	byName[l.Name] = r
}
