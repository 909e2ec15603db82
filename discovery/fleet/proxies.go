package fleet

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// proxies is the store of Proxy objects. Readers get a sorted, immutable list. The
// cost of an event does not depend on the number of proxies: events are collected,
// and the next reader merges them into a new list, which shares its elements with the
// old one.
type proxies struct {
	objectStore[*unstructured.Unstructured]
	log *slog.Logger

	mu       sync.Mutex
	list     []*Proxy            // of the last reader
	edits    map[string]*Proxy   // to be merged into list; nil deletes
	verdicts map[string]*verdict // of ProxyProbes, by the name of their Proxy
}

func newProxies(log *slog.Logger, changed *lease.Signal) *proxies {
	s := &proxies{log: log, edits: map[string]*Proxy{}, verdicts: map[string]*verdict{}}
	s.changed, s.read = changed, as[*unstructured.Unstructured]("proxies")
	s.put = func(u *unstructured.Unstructured) { s.edit(key(u.GetNamespace(), u.GetName()), s.convert(u)) }
	s.remove = func(u *unstructured.Unstructured) { s.edit(key(u.GetNamespace(), u.GetName()), nil) }
	s.replace = s.replaceAll
	return s
}

// all returns the current list.
func (s *proxies) all() []*Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.edits) == 0 {
		return s.list
	}
	names := slices.Sorted(maps.Keys(s.edits))
	list, rest := make([]*Proxy, 0, len(s.list)+len(names)), s.list
	for _, name := range names {
		i, found := slices.BinarySearchFunc(rest, name, compareKeys)
		list = append(list, rest[:i]...)
		if found {
			i++
		}
		rest = rest[i:]
		if p := s.edits[name]; p != nil {
			list = append(list, p)
		}
	}
	s.list = append(list, rest...)
	s.edits = map[string]*Proxy{}
	return s.list
}

// edit replaces a proxy; nil deletes it.
func (s *proxies) edit(name string, p *Proxy) {
	s.mu.Lock()
	if p != nil {
		p = p.withVerdict(s.verdicts[name])
	}
	s.edits[name] = p
	s.mu.Unlock()
	s.changed.Broadcast()
}

// setVerdict sets the verdict of a proxy's ProxyProbe, nil for none.
func (s *proxies) setVerdict(name string, v *verdict) {
	s.mu.Lock()
	differs := s.setVerdictLocked(name, v)
	s.mu.Unlock()
	if differs {
		s.changed.Broadcast()
	}
}

// setVerdicts replaces all verdicts.
func (s *proxies) setVerdicts(verdicts map[string]*verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.verdicts {
		if verdicts[name] == nil {
			s.setVerdictLocked(name, nil)
		}
	}
	for name, v := range verdicts {
		s.setVerdictLocked(name, v)
	}
}

// setVerdictLocked reports whether the proxy differs by the verdict.
func (s *proxies) setVerdictLocked(name string, v *verdict) bool {
	if v == nil {
		delete(s.verdicts, name)
	} else {
		s.verdicts[name] = v
	}
	p, edited := s.edits[name]
	if !edited {
		p = Snapshot{Proxies: s.list}.Find(name)
	}
	if p == nil {
		return false
	}
	now := p.withVerdict(v)
	if now != p {
		s.edits[name] = now
	}
	return now != p
}

func (s *proxies) replaceAll(objs []*unstructured.Unstructured) {
	list := make([]*Proxy, 0, len(objs))
	for _, u := range objs {
		list = append(list, s.convert(u))
	}
	slices.SortFunc(list, func(a, b *Proxy) int { return strings.Compare(a.Candidate.Proxy, b.Candidate.Proxy) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range list {
		list[i] = p.withVerdict(s.verdicts[p.Candidate.Proxy])
	}
	s.list, s.edits = list, map[string]*Proxy{}
}

// reasonUnreadable: the object does not fit our types.
const reasonUnreadable = "Unreadable"

// convert logs an object that does not fit our types. That proxy must not be offered and
// must not block the others; its instance stays known, since its leases have not ended.
func (s *proxies) convert(u *unstructured.Unstructured) *Proxy {
	var p v1alpha1.Proxy
	if err := v1alpha1.FromUnstructured(u.Object, &p); err != nil {
		s.log.Error("proxy not leased: the object does not fit this version's types; is the CRD of another version?",
			"namespace", u.GetNamespace(), "proxy", u.GetName(), "err", err)
		return unreadable(u)
	}
	return FromAPI(&p)
}

// unreadable is a proxy without a phase, which is not leasable.
func unreadable(u *unstructured.Unstructured) *Proxy {
	instance, _, _ := unstructured.NestedString(u.Object, "status", "instanceID")
	attributes, _, _ := unstructured.NestedStringMap(u.Object, "spec", "attributes")
	if attributes == nil {
		attributes = map[string]string{} // an object in JSON, not null
	}
	return &Proxy{
		Candidate: lease.Candidate{
			Instance: lease.Instance{ProxyUID: string(u.GetUID()), ID: instance},
			Proxy:    key(u.GetNamespace(), u.GetName()), MaxLeases: 1, LatencyMillis: lease.UnknownLatency,
		},
		Namespace: u.GetNamespace(), Name: u.GetName(), Attributes: attributes,
		Reason: reasonUnreadable, Deleting: u.GetDeletionTimestamp() != nil,
	}
}
