package prober

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// statusAPI stands in for the API server.
type statusAPI struct {
	mu     sync.Mutex
	fail   error
	block  chan struct{} // when set, writes wait for it or for their context
	tries  int
	stored map[types.NamespacedName][]v1alpha1.ProxyProbeStatus
}

func (a *statusAPI) PatchStatus(ctx context.Context, key types.NamespacedName, _ types.UID, st v1alpha1.ProxyProbeStatus) (string, error) {
	a.mu.Lock()
	a.tries++
	block, fail := a.block, a.fail
	a.mu.Unlock()
	if block != nil {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-block:
		}
	}
	if fail != nil {
		return "", fail
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stored == nil {
		a.stored = map[types.NamespacedName][]v1alpha1.ProxyProbeStatus{}
	}
	a.stored[key] = append(a.stored[key], st)
	return "", nil
}

func (a *statusAPI) set(fail error, block chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail, a.block = fail, block
}

func (a *statusAPI) tried() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tries
}

func (a *statusAPI) of(p *v1alpha1.ProxyProbe) []v1alpha1.ProxyProbeStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stored[keyOf(p)]
}

// withWriter runs a writer beside the rig until the test ends.
func withWriter(t *testing.T, r *rig, api statusPatcher) (w *writer, stop func()) {
	t.Helper()
	w = newWriter(api, r.engine, func() bool { return true }, r.clock, r.engine.metrics, quiet())
	r.engine.pending = w.enqueue
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return w, stop
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, patience, time.Millisecond, what)
}
