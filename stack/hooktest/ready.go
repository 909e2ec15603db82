package hooktest

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// AwaitReady returns a channel that is closed once n Proxies have been Ready. It watches, which is
// cheaper than polling.
func (l *Lab) AwaitReady(n int) <-chan struct{} {
	l.t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	all := make(chan struct{})
	l.play(v1alpha1.ProxyResource(), func(_ context.Context, obj *unstructured.Unstructured) error {
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		mu.Lock()
		defer mu.Unlock()
		if phase != string(v1alpha1.PhaseReady) || seen[obj.GetName()] {
			return nil
		}
		if seen[obj.GetName()] = true; len(seen) == n {
			close(all)
		}
		return nil
	})
	return all
}
