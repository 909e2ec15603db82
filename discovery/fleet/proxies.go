package fleet

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// proxies is where a reflector puts Proxy objects. Readers get a sorted list that
// never changes. An event costs the same whatever the number of proxies: it is
// noted, and all that were noted go into a new list, which shares the entries, when
// the next reader comes.
type proxies struct {
	log     *slog.Logger
	changed *lease.Signal

	mu       sync.Mutex
	list     []*Proxy            // that readers have
	edits    map[string]*Proxy   // what is to become of it: nil when it is to go
	verdicts map[string]*verdict // what ProxyProbes say against proxies, known or not
	synced   atomic.Bool
}

func newProxies(log *slog.Logger, changed *lease.Signal) *proxies {
	return &proxies{log: log, changed: changed, edits: map[string]*Proxy{}, verdicts: map[string]*verdict{}}
}

// all returns the list as of now.
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

// edit notes what is to become of a proxy.
func (s *proxies) edit(name string, p *Proxy) {
	s.mu.Lock()
	if p != nil {
		p = p.under(s.verdicts[name])
	}
	s.edits[name] = p
	s.mu.Unlock()
	s.changed.Broadcast()
}

// judge notes what a ProxyProbe says against the proxy of its name: nil for nothing.
func (s *proxies) judge(name string, v *verdict) {
	s.mu.Lock()
	differs := s.heed(name, v)
	s.mu.Unlock()
	if differs {
		s.changed.Broadcast()
	}
}

// judgeAll puts verdicts in the place of all that was said, and then sets known.
func (s *proxies) judgeAll(verdicts map[string]*verdict, known *atomic.Bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.verdicts {
		if verdicts[name] == nil {
			s.heed(name, nil)
		}
	}
	for name, v := range verdicts {
		s.heed(name, v)
	}
	known.Store(true)
	s.changed.Broadcast()
}

// heed is judge under the lock. It reports whether the proxy differs by it.
func (s *proxies) heed(name string, v *verdict) bool {
	if v == nil {
		delete(s.verdicts, name)
	} else {
		s.verdicts[name] = v
	}
	p := s.find(name)
	if p == nil {
		return false
	}
	now := p.under(v)
	if now != p {
		s.edits[name] = now
	}
	return now != p
}

// find returns the proxy as the next reader gets it, nil when there is none.
func (s *proxies) find(name string) *Proxy {
	if p, edited := s.edits[name]; edited {
		return p
	}
	return Snapshot{Proxies: s.list}.Find(name)
}

// Add, Update, Delete, Replace and Resync make it a cache.ReflectorStore.
func (s *proxies) Add(obj any) error { return s.put(obj) }

// Update is Add: an object that is there is replaced.
func (s *proxies) Update(obj any) error { return s.put(obj) }

func (s *proxies) put(obj any) error {
	u, err := asUnstructured(obj)
	if err != nil {
		return err
	}
	p, ok := s.convert(u)
	if !ok {
		return s.Delete(obj)
	}
	s.edit(p.Candidate.Proxy, p)
	return nil
}

// Delete removes the object's entry.
func (s *proxies) Delete(obj any) error {
	u, err := asUnstructured(obj)
	if err != nil {
		return err
	}
	s.edit(key(u.GetNamespace(), u.GetName()), nil)
	return nil
}

// Replace puts a whole list in the place of what is there.
func (s *proxies) Replace(objs []any, _ string) error {
	list := make([]*Proxy, 0, len(objs))
	for _, obj := range objs {
		u, err := asUnstructured(obj)
		if err != nil {
			return err
		}
		if p, ok := s.convert(u); ok {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *Proxy) int { return strings.Compare(a.Candidate.Proxy, b.Candidate.Proxy) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range list {
		list[i] = p.under(s.verdicts[p.Candidate.Proxy])
	}
	s.list = list
	s.edits = map[string]*Proxy{}
	s.synced.Store(true)
	s.changed.Broadcast()
	return nil
}

// Resync has nothing to do: no one is called back.
func (s *proxies) Resync() error { return nil }

// convert leaves out an object that does not fit our types, loudly. It must
// not be offered, and it must not keep the others from being offered.
func (s *proxies) convert(u *unstructured.Unstructured) (*Proxy, bool) {
	var p v1alpha1.Proxy
	if err := v1alpha1.FromUnstructured(u.Object, &p); err != nil {
		s.log.Error("proxy left out: the object does not fit this version's types; is the CRD of another version?",
			"namespace", u.GetNamespace(), "proxy", u.GetName(), "err", err)
		return nil, false
	}
	return FromAPI(&p), true
}

func asUnstructured(obj any) (*unstructured.Unstructured, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("watch of proxies brought a %T", obj)
	}
	return u, nil
}
