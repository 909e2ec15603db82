package fleet

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// probes is where a reflector puts ProxyProbe objects. Of each that says something
// against its proxy it tells the proxies, and keeps nothing itself: of a fleet that
// is well, ProxyProbes take no memory.
type probes struct {
	log     *slog.Logger
	proxies *proxies
	synced  atomic.Bool
}

var _ cache.TransformingStore = (*probes)(nil)

// word is a ProxyProbe without all that we have no use for.
type word struct {
	metav1.ObjectMeta // namespace and name
	verdict           *verdict
}

// Transformer has the watch make words of a list's objects before it has the list
// together.
func (s *probes) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.read(obj) }
}

// Add, Update, Delete, Replace and Resync make it a cache.ReflectorStore.
func (s *probes) Add(obj any) error { return s.put(obj) }

// Update is Add: what was said before counts no longer.
func (s *probes) Update(obj any) error { return s.put(obj) }

func (s *probes) put(obj any) error {
	w, err := s.read(obj)
	if err == nil {
		s.proxies.judge(key(w.Namespace, w.Name), w.verdict)
	}
	return err
}

// Delete takes back what the object said.
func (s *probes) Delete(obj any) error {
	w, err := s.read(obj)
	if err == nil {
		s.proxies.judge(key(w.Namespace, w.Name), nil)
	}
	return err
}

// Replace puts what a whole list says in the place of all that was said.
func (s *probes) Replace(objs []any, _ string) error {
	verdicts := map[string]*verdict{}
	for _, obj := range objs {
		w, err := s.read(obj)
		if err != nil {
			return err
		}
		if w.verdict != nil {
			verdicts[key(w.Namespace, w.Name)] = w.verdict
		}
	}
	s.proxies.judgeAll(verdicts, &s.synced)
	return nil
}

// Resync has nothing to do: no one is called back.
func (s *probes) Resync() error { return nil }

// read takes an object that does not fit our types for one that says nothing,
// loudly: the Proxy's status counts, as it does without any ProxyProbe.
func (s *probes) read(obj any) (*word, error) {
	if w, ok := obj.(*word); ok {
		return w, nil
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("watch of proxyprobes brought a %T", obj)
	}
	w := &word{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName()}}
	var p v1alpha1.ProxyProbe
	if err := v1alpha1.FromUnstructured(u.Object, &p); err != nil {
		s.log.Error("proxyprobe passed over: the object does not fit this version's types; is the CRD of another version?",
			"namespace", w.Namespace, "proxy", w.Name, "err", err)
		return w, nil
	}
	w.verdict = against(&p)
	return w, nil
}
