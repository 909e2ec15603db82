package fleet

import (
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

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
