package standin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

const (
	podJSON   = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"squid","image":"squid:1"}]}}`
	probeJSON = `{"apiVersion":"crawl.example.com/v1alpha1","kind":"ProxyProbe","metadata":{"name":"fra-1","namespace":"crawl"},"spec":{"host":"10.0.0.1","port":3128}}`
)

// want is a sync response with these children.
func want(children ...string) string {
	return `{"status":{"phase":"Ready"},"children":[` + strings.Join(children, ",") + `]}`
}

func TestSyncOfADeletedParent(t *testing.T) {
	h := newHarness(t)
	require.NoError(t, h.sync())
	require.Empty(t, h.hook.order())
	require.Empty(t, h.writes())
}

func TestFirstSync(t *testing.T) {
	h := newHarness(t, proxy(withoutFinalizer))
	h.hook.say(metacontroller.HookSync, want(podJSON, probeJSON))
	require.NoError(t, h.sync())

	require.Equal(t, []string{
		"update proxies crawl/fra-1",
		"create pods crawl/a",
		"create proxyprobes crawl/fra-1",
		"update proxies/status crawl/fra-1",
	}, h.writes())
	sent := h.hook.last(t, metacontroller.HookSync)
	require.Equal(t, []string{metacontroller.Finalizer}, parse(t, string(sent.Parent)).GetFinalizers(), "the finalizer is there before anything can be made")

	created := h.live("pods", "a")
	owner := metav1.GetControllerOf(created)
	require.Equal(t, metav1.OwnerReference{APIVersion: "crawl.example.com/v1alpha1", Kind: "Proxy", Name: "fra-1", UID: parentID, Controller: owner.Controller, BlockOwnerDeletion: owner.BlockOwnerDeletion}, *owner)
	require.True(t, *owner.BlockOwnerDeletion)
	require.Equal(t, map[string]string{"controller-uid": string(parentID)}, created.GetLabels())
	require.JSONEq(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"controller-uid":"`+string(parentID)+`"},"name":"a","namespace":"crawl"},"spec":{"containers":[{"image":"squid:1","name":"squid"}]}}`,
		created.GetAnnotations()["metacontroller.k8s.io/last-applied-configuration"])
	require.Equal(t, map[string]any{"phase": "Ready", "observedGeneration": int64(1)}, h.live("proxies", "fra-1").Object["status"])
}

func TestStatusIsReplacedWholeAndOnlyWhenDifferent(t *testing.T) {
	status := func(fields map[string]any) func(*object) {
		return func(o *object) { o.Object["status"] = fields }
	}
	tests := []struct {
		name   string
		status map[string]any
		answer string
		writes bool
		want   map[string]any
	}{
		{"the same", map[string]any{"phase": "Ready", "observedGeneration": int64(1)}, `{"phase":"Ready"}`, false, map[string]any{"phase": "Ready", "observedGeneration": int64(1)}},
		{"a field less", map[string]any{"phase": "Ready", "ip": "10.0.0.1", "observedGeneration": int64(1)}, `{"phase":"Ready"}`, true, map[string]any{"phase": "Ready", "observedGeneration": int64(1)}},
		{"an older generation", map[string]any{"phase": "Ready", "observedGeneration": int64(0)}, `{"phase":"Ready"}`, true, map[string]any{"phase": "Ready", "observedGeneration": int64(1)}},
		{"the hook's own observedGeneration does not count", map[string]any{"observedGeneration": int64(1)}, `{"observedGeneration":7}`, false, map[string]any{"observedGeneration": int64(1)}},
		{"null wipes", map[string]any{"phase": "Ready"}, `null`, true, map[string]any{"observedGeneration": int64(1)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, proxy(status(tt.status)))
			h.hook.say(metacontroller.HookSync, `{"status":`+tt.answer+`,"children":[]}`)
			require.NoError(t, h.sync())
			require.Equal(t, tt.writes, len(h.writes()) > 0, h.writes())
			require.Equal(t, tt.want, h.live("proxies", "fra-1").Object["status"])
		})
	}
}

func TestDeletesComeBeforeCreates(t *testing.T) {
	h := newHarness(t, proxy(), pod("old"), pod("dying", deleting))
	h.hook.say(metacontroller.HookSync, want(podJSON))
	require.NoError(t, h.sync())
	require.Equal(t, []string{"delete pods crawl/old", "create pods crawl/a", "update proxies/status crawl/fra-1"}, h.writes())

	options := h.deleteOptions()
	require.Len(t, options, 1)
	require.EqualValues(t, "uid-of-old", *options[0].Preconditions.UID, "not whoever has the name now")
	require.Equal(t, metav1.DeletePropagationBackground, *options[0].PropagationPolicy)
}

func (h *harness) deleteOptions() []metav1.DeleteOptions {
	var out []metav1.DeleteOptions
	for _, action := range h.api.Actions() {
		if del, ok := action.(clienttesting.DeleteActionImpl); ok {
			out = append(out, del.DeleteOptions)
		}
	}
	return out
}

func TestResponseWithoutChildrenDeletesAll(t *testing.T) {
	for _, answer := range []string{`null`, `{}`, `{"status":{"phase":"Ready"}}`, `{"children":null}`} {
		h := newHarness(t, proxy(), pod("a"))
		h.hook.say(metacontroller.HookSync, answer)
		require.NoError(t, h.sync())
		require.Nil(t, h.live("pods", "a"), "as the real one does: %s", answer)
	}
}

func TestNullChildIsAnError(t *testing.T) {
	h := newHarness(t, proxy(), pod("old"))
	h.hook.say(metacontroller.HookSync, `{"status":{"phase":"Failed"},"children":[`+podJSON+`,null],"resyncAfterSeconds":5}`)
	require.ErrorIs(t, h.sync(), errNullChild)
	require.Empty(t, h.writes(), "nothing is deleted, nothing created, no status")
	require.Contains(t, <-h.events.Events, "Warning SyncError")
}

func TestBadLabels(t *testing.T) {
	for labels, want := range map[string]string{
		`{"controller-uid":"mine"}`: "Pod crawl/a has label controller-uid: mine",
		`{"n":1}`:                   "labels of Pod crawl/a",
	} {
		h := newHarness(t, proxy(), pod("old"))
		h.hook.say(metacontroller.HookSync, `{"status":{},"children":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":`+labels+`}}]}`)
		require.ErrorContains(t, h.sync(), want)
		require.Empty(t, h.writes())
	}
}

func TestSwallowedErrors(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	changedProbe := strings.Replace(probeJSON, "10.0.0.1", "10.0.0.2", 1)
	probe := func() *object {
		obj := parse(t, probeJSON)
		obj.SetUID("uid-of-probe")
		obj.SetLabels(map[string]string{selectorLabel: string(parentID)})
		own(proxy(), obj)
		return obj
	}
	tests := []struct {
		name, verb, resource string
		err                  error
	}{
		{"a create that finds the name taken", "create", "pods", apierrors.NewAlreadyExists(pods, "a")},
		{"a delete of what is gone", "delete", "pods", apierrors.NewNotFound(pods, "old")},
		{"an update of what is gone", "update", "proxyprobes", apierrors.NewNotFound(pods, "fra-1")},
		{"an update of what has changed", "update", "proxyprobes", apierrors.NewConflict(pods, "fra-1", errors.New("changed"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, proxy(), pod("old"), probe())
			h.hook.say(metacontroller.HookSync, want(podJSON, changedProbe))
			h.failOn(tt.verb, tt.resource, tt.err)
			require.NoError(t, h.sync())
			require.Contains(t, h.writes(), "update proxies/status crawl/fra-1")
			require.Contains(t, strings.Join(h.writes(), "\n"), tt.verb+" "+tt.resource, "it was tried")
			require.Zero(t, h.queue.NumRequeues(parentKey), "and nothing comes of it")
			require.Empty(t, h.events.Events)
		})
	}
}

func TestFailedChildBlocksNeitherOthersNorTheStatus(t *testing.T) {
	h := newHarness(t, proxy(), pod("old"))
	h.failOn("delete", "pods", errors.New("not now"))
	h.hook.say(metacontroller.HookSync, `{"status":{"phase":"Replacing"},"children":[`+podJSON+`,`+`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"}}`+`]}`)
	err := h.sync()
	require.ErrorContains(t, err, "reconcile children")
	require.ErrorContains(t, err, "delete Pod crawl/old: not now")
	require.ErrorContains(t, err, "find kind Job in batch/v1")
	require.Equal(t, []string{"delete pods crawl/old", "create pods crawl/a", "update proxies/status crawl/fra-1"}, h.writes())
	require.Contains(t, <-h.events.Events, "not now")
}

func TestResyncIsScheduledAlthoughWritesFail(t *testing.T) {
	h := newHarness(t, proxy())
	h.drain()
	h.failOn("update", "proxies", errors.New("status is read-only today"))
	h.hook.say(metacontroller.HookSync, `{"status":{"phase":"Ready"},"children":[],"resyncAfterSeconds":2.5}`)
	require.ErrorContains(t, h.controller.sync(h.ctx, parentKey), "update status")
	require.Empty(t, h.due(2500*time.Millisecond-slack))
	require.Equal(t, []string{parentKey}, h.due(slack))
}

func TestOnDeleteChildrenAreNeverUpdated(t *testing.T) {
	h := newHarness(t, proxy(), pod("a"))
	h.hook.say(metacontroller.HookSync, want(strings.Replace(podJSON, "squid:1", "squid:2", 1)))
	require.NoError(t, h.sync())
	require.Equal(t, []string{"update proxies/status crawl/fra-1"}, h.writes())
	h.hook.say(metacontroller.HookSync, want(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`))
	require.NoError(t, h.sync())
	require.NotNil(t, h.live("pods", "a"), "naming it is enough to keep it")
}

func TestInPlaceChildrenAreUpdatedWhenTheyDiffer(t *testing.T) {
	h := newHarness(t, proxy())
	h.hook.say(metacontroller.HookSync, want(probeJSON))
	require.NoError(t, h.sync())
	require.Eventually(t, func() bool { return len(h.children[1].cache.List()) == 1 }, patience, time.Millisecond)
	h.api.ClearActions()
	require.NoError(t, h.sync())
	require.Empty(t, h.writes(), "at rest")

	h.hook.say(metacontroller.HookSync, want(strings.Replace(probeJSON, `"port":3128`, `"port":3129`, 1)))
	require.NoError(t, h.sync())
	require.Equal(t, []string{"update proxyprobes crawl/fra-1"}, h.writes())
	probe := h.live("proxyprobes", "fra-1")
	require.Equal(t, map[string]any{"host": "10.0.0.1", "port": int64(3129)}, probe.Object["spec"])
	require.Contains(t, probe.GetAnnotations()[lastAppliedAnnotation], "3129")
	require.NotNil(t, metav1.GetControllerOf(probe))
}

func TestTerminatingChildrenAreNotWritten(t *testing.T) {
	probe := parse(t, probeJSON)
	probe.SetLabels(map[string]string{selectorLabel: string(parentID)})
	own(proxy(), probe)
	deleting(probe)
	h := newHarness(t, proxy(), probe)
	h.hook.say(metacontroller.HookSync, want(strings.Replace(probeJSON, "3128", "3129", 1)))
	require.NoError(t, h.sync())
	require.Equal(t, []string{"update proxies/status crawl/fra-1"}, h.writes())
}

func TestFinalize(t *testing.T) {
	h := newHarness(t, proxy(deleting), pod("a"))
	h.hook.say(metacontroller.HookFinalize, `{"status":{"phase":"Deleting"},"children":[],"finalized":false,"resyncAfterSeconds":5}`)
	require.NoError(t, h.sync())
	require.Equal(t, []string{"delete pods crawl/a", "update proxies/status crawl/fra-1"}, h.writes())
	require.True(t, h.hook.last(t, metacontroller.HookFinalize).Finalizing)
	require.Empty(t, h.hook.got(metacontroller.HookSync))

	h.api.ClearActions()
	h.hook.say(metacontroller.HookFinalize, `{"status":{"phase":"Deleting"},"children":[],"finalized":true}`)
	require.NoError(t, h.sync())
	require.Equal(t, "update proxies crawl/fra-1", h.writes()[0])
	require.Empty(t, h.live("proxies", "fra-1").GetFinalizers())
}

func TestFinalizersOfOthers(t *testing.T) {
	other := func(names ...string) func(*object) {
		return func(o *object) { o.SetFinalizers(names) }
	}
	tests := []struct {
		name    string
		parent  *object
		deletes bool
	}{
		{"ours is gone and another holds the parent: asked, but children are not ours to touch", proxy(deleting, other("example.com/wait")), false},
		{"the garbage collector is at work", proxy(deleting, other(metacontroller.Finalizer, metav1.FinalizerDeleteDependents)), false},
		{"ours and another's", proxy(deleting, other("example.com/wait", metacontroller.Finalizer)), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, tt.parent, pod("a"))
			h.hook.say(metacontroller.HookFinalize, `{"status":{},"children":[],"finalized":false}`)
			require.NoError(t, h.sync())
			require.Len(t, h.hook.got(metacontroller.HookFinalize), 1)
			require.Equal(t, tt.deletes, h.live("pods", "a") == nil)
			require.Equal(t, tt.parent.GetFinalizers(), h.live("proxies", "fra-1").GetFinalizers())
		})
	}
}

func TestFinalizerIsRemovedWithoutAFinalizeHook(t *testing.T) {
	h := newHarness(t, proxy())
	h.hooks.finalize = nil
	require.NoError(t, h.sync())
	require.Empty(t, h.live("proxies", "fra-1").GetFinalizers())
	require.Len(t, h.hook.got(metacontroller.HookSync), 1)
}

// A stale cache still has a Proxy whose name a new one has taken: the new one must
// not be changed.
func TestSuccessorOfTheSameNameIsNotWritten(t *testing.T) {
	successor := func(obj *object) *object {
		obj.SetUID("successor")
		return obj
	}
	t.Run("finalizer", func(t *testing.T) {
		h := newHarness(t, proxy(withoutFinalizer))
		h.answerGet(successor(proxy(withoutFinalizer)))
		require.ErrorContains(t, h.sync(), "add finalizer")
		require.Empty(t, h.writes())
		require.Empty(t, h.hook.order())
	})
	t.Run("status", func(t *testing.T) {
		h := newHarness(t, proxy())
		h.answerGet(successor(proxy()))
		require.NoError(t, h.sync(), "there is nobody left to report to")
		require.Empty(t, h.writes())
	})
	t.Run("finalized", func(t *testing.T) {
		h := newHarness(t, proxy(deleting))
		h.answerGet(successor(proxy()))
		require.ErrorContains(t, h.sync(), "remove finalizer")
		require.Empty(t, h.writes())
	})
}

// answerGet makes the API server answer reads of Proxies with obj.
func (h *harness) answerGet(obj *object) {
	h.api.PrependReactor("get", "proxies", func(clienttesting.Action) (bool, runtime.Object, error) { return true, obj, nil })
}

func TestConflictsAreRetried(t *testing.T) {
	h := newHarness(t, proxy(withoutFinalizer))
	left := 2
	h.api.PrependReactor("update", "proxies", func(clienttesting.Action) (bool, runtime.Object, error) {
		if left--; left >= 0 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "proxies"}, "fra-1", errors.New("changed"))
		}
		return false, nil, nil
	})
	require.NoError(t, h.sync())
	require.Equal(t, []string{metacontroller.Finalizer}, h.live("proxies", "fra-1").GetFinalizers())
}

func TestFailingHookWritesNothing(t *testing.T) {
	h := newHarness(t, proxy(func(o *object) { o.Object["status"] = map[string]any{"phase": "Ready"} }), pod("a"))
	h.hook.on(metacontroller.HookSync, func(call) reply { return reply{code: 500, body: "out of order"} })
	require.Error(t, h.sync())
	require.Empty(t, h.writes())
	require.Equal(t, "Warning SyncError Sync error: sync hook: status 500: out of order", <-h.events.Events)

	h.hook.on(metacontroller.HookSync, func(call) reply { return reply{code: 429, header: map[string]string{"Retry-After": "3"}} })
	require.Error(t, h.sync())
	require.Empty(t, h.writes())
	require.Empty(t, h.events.Events, "being busy is no event")
}

// Children of kinds that are not in the manifest are created, and then neither
// observed nor updated.
func TestChildOfAKindOutsideTheManifest(t *testing.T) {
	h := newHarness(t, proxy())
	h.hook.say(metacontroller.HookSync, want(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`))
	require.NoError(t, h.sync())
	require.NotNil(t, h.live("configmaps", "c"))
	require.NoError(t, h.sync())
	require.NotContains(t, h.hook.last(t, metacontroller.HookSync).Children, "ConfigMap.v1")
}
