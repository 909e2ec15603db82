package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Renewal is the last sign of life of one prober shard.
type Renewal struct {
	// Shard that the prober is responsible for.
	Shard v1alpha1.Shard
	// At is when it last renewed its Lease object, never after the moment at
	// which we learned of it.
	At time.Time
}

// Freshness says whose verdicts to believe. A prober writes verdicts only when
// they change, so an old verdict is a good one, for as long as the prober is
// alive: its Lease object says so. Several generations of shards may be known
// at once, while their number is changed.
type Freshness struct {
	now      time.Time
	maxAge   time.Duration
	renewals []Renewal // by descending time
}

// NewFreshness judges renewals at the time now: one older than maxAge counts
// no longer. A small difference between the prober's clock and ours shifts that
// moment by as much.
func NewFreshness(renewals []Renewal, now time.Time, maxAge time.Duration) Freshness {
	sorted := slices.Clone(renewals)
	slices.SortFunc(sorted, func(a, b Renewal) int { return b.At.Compare(a.At) })
	return Freshness{now: now, maxAge: maxAge, renewals: sorted}
}

// Fresh reports whether a prober that is responsible for the Proxy with this
// UID has shown a sign of life lately.
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

// Alive names the shards whose verdicts are believed. While it stays the same,
// so does what Fresh says of every UID.
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

// Shards counts the shards that are alive and those that have lapsed. When the
// number of shards is changed, the Lease objects of the former ones stay behind:
// they count no longer once all of the new ones are alive, so that every UID has a
// prober.
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

// Explain says why Fresh is false.
func (f Freshness) Explain(proxyUID string) string {
	if len(f.renewals) == 0 {
		return "no prober has ever renewed a Lease: is one running?"
	}
	for _, r := range f.renewals {
		if r.Shard.Owns(types.UID(proxyUID)) {
			return fmt.Sprintf("prober shard %s has not renewed its Lease for %s, and verdicts count for %s: is it running?",
				r.Shard, f.now.Sub(r.At).Round(time.Second), f.maxAge)
		}
	}
	return fmt.Sprintf("no prober shard is responsible for it, known are %s: is one missing?", f.known())
}

func (f Freshness) known() []v1alpha1.Shard {
	out := make([]v1alpha1.Shard, len(f.renewals))
	for i, r := range f.renewals {
		out[i] = r.Shard
	}
	return out
}
