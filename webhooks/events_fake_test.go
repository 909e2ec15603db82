package webhooks

import (
	"sync"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	corev1 "k8s.io/api/core/v1"
)

// fakeRecorder keeps what it is told.
type fakeRecorder struct {
	mu     sync.Mutex
	about  []corev1.ObjectReference
	events []proxy.Event
}

func (f *fakeRecorder) Record(about corev1.ObjectReference, e proxy.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.about, f.events = append(f.about, about), append(f.events, e)
}

// take returns the reasons so far, and forgets them.
func (f *fakeRecorder) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	reasons := []string{}
	for _, e := range f.events {
		reasons = append(reasons, e.Reason)
	}
	f.about, f.events = nil, nil
	return reasons
}
