package standin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestChanged(t *testing.T) {
	set := func(edit func(*object)) *object { return proxy(edit) }
	tests := []struct {
		name string
		obj  *object
		want bool
	}{
		{"nothing", proxy(), false},
		{"the status", set(func(o *object) { o.Object["status"] = map[string]any{"phase": "Ready"} }), false},
		{"the finalizers", set(withoutFinalizer), false},
		{"the generation", set(func(o *object) { o.SetGeneration(2) }), true},
		{"a label", set(func(o *object) { o.SetLabels(map[string]string{"a": "b"}) }), true},
		{"an annotation", set(func(o *object) { o.SetAnnotations(map[string]string{"a": "b"}) }), true},
		{"a deletion", set(deleting), true},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, changed(proxy(), tt.obj), tt.name)
	}
}

// drain returns the keys in the queue.
func (h *harness) drain() []string {
	keys := []string{}
	for h.queue.Len() > 0 {
		key, _ := h.queue.Get()
		keys = append(keys, key)
		h.queue.Done(key)
	}
	return keys
}

func TestParentEvents(t *testing.T) {
	h := newHarness(t, proxy())
	require.NotEmpty(t, h.drain(), "those that were there from the start")
	handler := h.parentHandler()

	handler.OnAdd(proxy(), false)
	require.Equal(t, []string{"crawl/fra-1"}, h.drain())
	handler.OnUpdate(proxy(), proxy())
	require.Empty(t, h.drain())
	handler.OnUpdate(proxy(), proxy(func(o *object) { o.SetGeneration(2) }))
	require.Equal(t, []string{"crawl/fra-1"}, h.drain())
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "crawl/fra-1", Obj: proxy()})
	require.Equal(t, []string{"crawl/fra-1"}, h.drain())

	h.Controller.Spec.ParentResource.IgnoreStatusChanges = nil
	h.parentHandler().OnUpdate(proxy(), proxy())
	require.Equal(t, []string{"crawl/fra-1"}, h.drain())
}

func TestChildEvents(t *testing.T) {
	newer := func(o *object) { o.SetResourceVersion("12") }
	anotherKind := func(o *object) {
		ref := *metav1.GetControllerOf(o)
		ref.Kind = "Job"
		o.SetOwnerReferences([]metav1.OwnerReference{ref})
	}
	yes, no := []string{"crawl/fra-1"}, []string{}
	h := newHarness(t, proxy())
	require.NotEmpty(t, h.drain(), "those that were there from the start")
	handler := h.childHandler()
	tests := []struct {
		name  string
		event func()
		want  []string
	}{
		{"ours came", func() { handler.OnAdd(pod("a"), false) }, yes},
		{"ours changed", func() { handler.OnUpdate(pod("a"), pod("a", newer)) }, yes},
		{"a re-list brought the same", func() { handler.OnUpdate(pod("a"), pod("a")) }, no},
		{"ours went", func() { handler.OnDelete(pod("a")) }, yes},
		{"ours went unseen", func() { handler.OnDelete(cache.DeletedFinalStateUnknown{Obj: pod("a")}) }, yes},
		{"somebody else's", func() { handler.OnAdd(pod("a", ownedByAnother), false) }, no},
		{"another kind's of our name", func() { handler.OnAdd(pod("a", anotherKind), false) }, no},
		{"in another namespace", func() { handler.OnAdd(pod("a", func(o *object) { o.SetNamespace("other") }), false) }, no},
		{"an orphan with our label", func() { handler.OnAdd(pod("a", orphaned), false) }, yes},
		{"an orphan without", func() { handler.OnAdd(pod("a", orphaned, unlabelled), false) }, no},
		{"a dying orphan", func() { handler.OnAdd(pod("a", orphaned, deleting), false) }, no},
		{"an orphan went", func() { handler.OnDelete(pod("a", orphaned)) }, no},
	}
	for _, tt := range tests {
		tt.event()
		require.Equal(t, tt.want, h.drain(), tt.name)
	}
}

func TestResyncPeriod(t *testing.T) {
	h := newHarness(t)
	require.Equal(t, 5*time.Minute, h.resyncPeriod(), "the manifest's")
	h.ResyncPeriod = time.Minute
	require.Equal(t, time.Minute, h.resyncPeriod(), "the flag's")
	h.ResyncPeriod, h.Controller.Spec.ResyncPeriodSeconds = 0, nil
	require.Equal(t, 30*time.Minute, h.resyncPeriod())
}

func TestResyncQueuesEveryParent(t *testing.T) {
	h := newHarness(t, proxy(), proxy(func(o *object) { o.SetName("fra-2"); o.SetUID("2") }))
	require.NotEmpty(t, h.drain(), "those that were there from the start")
	done := make(chan struct{})
	go func() { h.resyncAll(h.ctx); close(done) }()
	t.Cleanup(func() { <-done })
	// One waiter is the queue's own.
	require.Eventually(t, func() bool { return h.clock.Waiters() == 2 }, patience, time.Millisecond)
	for range 2 {
		h.clock.Step(5 * time.Minute)
		require.Eventually(t, func() bool { return h.queue.Len() == 2 }, patience, time.Millisecond)
		require.ElementsMatch(t, []string{"crawl/fra-1", "crawl/fra-2"}, h.drain())
	}
}
