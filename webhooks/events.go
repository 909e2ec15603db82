package webhooks

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// Recorder sends Events, best effort. Metacontroller waits for the hook during
// Record, so it never blocks and reports no errors.
type Recorder interface {
	Record(about corev1.ObjectReference, e proxy.Event)
}

// maxSent bounds the cache of sent Events, at some 200 bytes each.
const maxSent = 1 << 14

// eventSender sends each Event once. When a status write failed, or its result is
// not visible yet, Metacontroller sends the same stale request again, and the same
// transition follows from it.
type eventSender struct {
	to Recorder // nil when Events are off

	mu   sync.Mutex
	sent *lru.Cache
}

type sentKey struct {
	uid types.UID
	id  string
}

func newEventSender(to Recorder) *eventSender {
	return &eventSender{to: to, sent: lru.New(maxSent)}
}

// send sends the Events about p that are not in the cache. The reference has the
// UID: a Proxy that is created again under its old name has Events of its own.
func (s *eventSender) send(p *v1alpha1.Proxy, events []proxy.Event) {
	if s.to == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		key := sentKey{p.UID, e.ID}
		if _, found := s.sent.Get(key); found {
			continue
		}
		s.sent.Add(key, nil)
		s.to.Record(corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy", Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
		}, e)
	}
}
