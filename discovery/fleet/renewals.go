package fleet

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// renewals is where a reflector puts the Lease objects of prober shards.
type renewals struct {
	clock   clock.PassiveClock
	log     *slog.Logger
	changed *lease.Signal
	synced  atomic.Bool

	mu     sync.Mutex
	byName map[string]seen
}

// seen is a Renewal and the time that its Lease object claimed.
type seen struct {
	Renewal
	claimed time.Time
}

func newRenewals(clk clock.PassiveClock, log *slog.Logger, changed *lease.Signal) *renewals {
	return &renewals{clock: clk, log: log, changed: changed, byName: map[string]seen{}}
}

func (s *renewals) list() []Renewal {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Renewal, 0, len(s.byName))
	for _, r := range s.byName {
		out = append(out, r.Renewal)
	}
	return out
}

// Add, Update, Delete, Replace and Resync make it a cache.ReflectorStore.
func (s *renewals) Add(obj any) error { return s.put(obj) }

// Update is Add: a Lease that is there is replaced.
func (s *renewals) Update(obj any) error { return s.put(obj) }

func (s *renewals) put(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	return s.putInto(s.byName, obj)
}

// putInto takes the Lease's word for the time of its renewal, but never a time
// to come: with a prober whose clock is ahead of ours, the verdicts of a dead
// one would be believed for as much longer.
func (s *renewals) putInto(byName map[string]seen, obj any) error {
	l, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("watch of prober leases brought a %T", obj)
	}
	shard, err := v1alpha1.ParseLeaseLabel(l.Labels[v1alpha1.LabelProberShard])
	if err != nil || l.Spec.RenewTime == nil {
		s.log.Warn("lease ignored: it names no prober shard or was never renewed", "namespace", l.Namespace, "lease", l.Name, "err", err)
		delete(byName, l.Name)
		return nil
	}
	r := seen{claimed: l.Spec.RenewTime.Time, Renewal: Renewal{Shard: shard, At: l.Spec.RenewTime.Time}}
	if now := s.clock.Now(); r.At.After(now) {
		r.At = now
	}
	if old, ok := s.byName[l.Name]; ok && old.claimed.Equal(r.claimed) {
		r.At = old.At
	}
	byName[l.Name] = r
	return nil
}

// Delete removes a Lease: its shard is no more.
func (s *renewals) Delete(obj any) error {
	l, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("watch of prober leases brought a %T", obj)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, l.Name)
	return nil
}

// Replace puts a whole list in the place of what is there.
func (s *renewals) Replace(objs []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	byName := make(map[string]seen, len(objs))
	for _, obj := range objs {
		if err := s.putInto(byName, obj); err != nil {
			return err
		}
	}
	s.byName = byName
	s.synced.Store(true)
	s.changed.Broadcast()
	return nil
}

// Resync has nothing to do: no one is called back.
func (s *renewals) Resync() error { return nil }
