package fleet

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func object(t testing.TB, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	p := readyProxy()
	p.Namespace, p.Name = namespace, name
	return proxyObject(t, p)
}

func proxyObject(t testing.TB, p *v1alpha1.Proxy) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: content}
}

func names(s *proxies) []string {
	var out []string
	for _, p := range s.all() {
		out = append(out, p.Candidate.Proxy)
	}
	return out
}

func TestProxiesFollowEvents(t *testing.T) {
	s := newProxies(testLog(), &lease.Signal{})
	require.NoError(t, s.Replace([]any{object(t, "b", "y"), object(t, "a", "z"), object(t, "b", "x")}, "1"))
	assert.Equal(t, []string{"a/z", "b/x", "b/y"}, names(s))

	before := s.all()
	require.NoError(t, s.Add(object(t, "b", "a")))
	changed := object(t, "b", "x")
	require.NoError(t, unstructured.SetNestedField(changed.Object, "Unhealthy", "status", "phase"))
	require.NoError(t, s.Update(changed))
	require.NoError(t, s.Delete(object(t, "b", "y")))
	require.NoError(t, s.Delete(object(t, "b", "never-there")))
	assert.Equal(t, []string{"a/z", "b/a", "b/x"}, names(s))
	assert.Equal(t, v1alpha1.PhaseUnhealthy, Snapshot{Proxies: s.all()}.Find("b/x").Phase)

	assert.Len(t, before, 3, "a list once taken does not change")
	assert.Equal(t, v1alpha1.PhaseReady, before[1].Phase)
	assert.Nil(t, Snapshot{Proxies: before}.Find("b/a"))
	require.NoError(t, s.Resync())
}

// TestProxiesLeaveOutWhatTheyCannotRead: one odd object must not take the
// others with it, and must not be offered as it was before.
func TestProxiesLeaveOutWhatTheyCannotRead(t *testing.T) {
	var out bytes.Buffer
	s := newProxies(slog.New(slog.NewTextHandler(&out, nil)), &lease.Signal{})
	odd := object(t, "b", "odd")
	require.NoError(t, unstructured.SetNestedField(odd.Object, "seven", "status", "port"))
	require.NoError(t, s.Replace([]any{odd, object(t, "a", "fine")}, "1"))
	assert.Equal(t, []string{"a/fine"}, names(s))
	assert.Contains(t, out.String(), "proxy=odd")

	odd.SetName("fine")
	odd.SetNamespace("a")
	require.NoError(t, s.Update(odd))
	assert.Empty(t, names(s))

	assert.ErrorContains(t, s.Add(&metav1.Status{}), "*v1.Status")
	assert.Error(t, s.Delete(&metav1.Status{}))
	assert.Error(t, s.Replace([]any{&metav1.Status{}}, "2"))
}

func TestProxiesReadersSeeWholeLists(t *testing.T) {
	s := newProxies(testLog(), &lease.Signal{})
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range 100 {
				assert.NoError(t, s.Add(object(t, "ns", fmt.Sprintf("p-%d-%02d", w, i))))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for {
		list := s.all()
		require.True(t, slices.IsSortedFunc(list, func(a, b *Proxy) int { return compareKeys(a, b.Candidate.Proxy) }))
		select {
		case <-done:
			assert.Len(t, names(s), 200)
			return
		default:
		}
	}
}
