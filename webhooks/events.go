package webhooks

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Recorder sends Events, best effort. Record is called while Metacontroller waits
// for an answer: it never blocks, and tells nobody of what becomes of the Event.
type Recorder interface {
	Record(about corev1.ObjectReference, e Event)
}

// rememberedEdges bounds what is remembered of Events sent, some 200 bytes each.
const rememberedEdges = 1 << 14

// announcer sends each edge once. A status that Metacontroller could not write, or
// does not see yet, makes it send the request again from which the edge came.
type announcer struct {
	to Recorder // nil when nobody wants Events

	mu   sync.Mutex
	seen *lru.Cache
}

type seenEdge struct {
	uid  types.UID
	edge string
}

func newAnnouncer(to Recorder) *announcer {
	return &announcer{to: to, seen: lru.New(rememberedEdges)}
}

// announce sends the Events of a decision that the API server is about to be
// told of.
func (a *announcer) announce(o *Observation, d *Decision) {
	if a.to == nil {
		return
	}
	for _, e := range edges(o, d) {
		if a.first(seenEdge{o.Proxy.UID, e.Edge}) {
			a.to.Record(referenceTo(o.Proxy), e)
		}
	}
}

// first reports whether the edge was not seen before, as far as is remembered.
func (a *announcer) first(e seenEdge) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, seen := a.seen.Get(e); seen {
		return false
	}
	a.seen.Add(e, nil)
	return true
}

// referenceTo names p by its UID too: a Proxy that is created anew under an old
// name has no part in that one's Events.
func referenceTo(p *v1alpha1.Proxy) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy", Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
	}
}
