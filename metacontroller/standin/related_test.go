package standin

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

func secret(name string, edit ...func(*object)) *object {
	obj := &object{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Secret",
		"metadata":   map[string]any{"name": name, "namespace": "crawl", "uid": "uid-of-" + name, "resourceVersion": "5", "labels": map[string]any{"use": name}},
	}}
	for _, e := range edit {
		e(obj)
	}
	return obj
}

func inOther(obj *object) { obj.SetNamespace("other") }

func TestRuleMatches(t *testing.T) {
	tests := []struct {
		name, rule string
		obj        *object
		want       bool
	}{
		{"by name", `{"names":["a"]}`, secret("a"), true},
		{"another name", `{"names":["a","b"]}`, secret("c"), false},
		{"by name, any namespace", `{"names":["a"]}`, secret("a", inOther), true},
		{"by namespace and name", `{"namespace":"crawl","names":["a"]}`, secret("a"), true},
		{"that name elsewhere", `{"namespace":"crawl","names":["a"]}`, secret("a", inOther), false},
		{"all of a namespace", `{"namespace":"crawl"}`, secret("a"), true},
		{"by label", `{"labelSelector":{"matchLabels":{"use":"a"}}}`, secret("a"), true},
		{"another label", `{"labelSelector":{"matchLabels":{"use":"a"}}}`, secret("b"), false},
		{"by label and namespace", `{"namespace":"crawl","labelSelector":{"matchLabels":{"use":"a"}}}`, secret("a", inOther), false},
		{"everything", `{}`, secret("a", inOther), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var rule relatedRule
			require.NoError(t, json.Unmarshal([]byte(tt.rule), &rule))
			require.NoError(t, rule.validate())
			require.Equal(t, tt.want, rule.matches(tt.obj, true))
		})
	}
	byNamespace := relatedRule{Namespace: "crawl"}
	require.True(t, byNamespace.matches(parse(t, `{"metadata":{"name":"node"}}`), false), "cluster-scoped objects are in no namespace")
}

func TestRuleValidate(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	broken := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	for want, rule := range map[string]*relatedRule{
		"null":              nil,
		"both names and a":  {Names: []string{"a"}, LabelSelector: selector},
		"namespaceSelector": {NamespaceSelector: selector},
		"bad labelSelector": {LabelSelector: broken},
	} {
		require.ErrorContains(t, rule.validate(), want)
	}
}

func relate(h *harness, rule string) {
	h.hook.say(metacontroller.HookCustomize, `{"relatedResources":[`+rule+`]}`)
}

// eventually reconciles until the caches of related objects are synced.
func (h *harness) eventually() {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return h.sync() == nil }, patience, 5*time.Millisecond)
}

// holdSecrets blocks requests for Secrets, and all others after the first of them,
// until the returned function is called.
func (h *harness) holdSecrets() (release func()) {
	held := make(chan struct{})
	release = sync.OnceFunc(func() { close(held) })
	h.t.Cleanup(release)
	h.api.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { <-held; return false, nil, nil })
	h.api.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) { <-held; return false, nil, nil })
	return release
}

func TestRelatedObjectsAreSentAndTheirInformersStartOnDemand(t *testing.T) {
	h := newHarness(t, proxy(), secret("a"), secret("b"), secret("a", inOther))
	list := h.holdSecrets()
	relate(h, `{"apiVersion":"v1","resource":"secrets","namespace":"crawl","names":["a"]}`)
	require.ErrorIs(t, h.sync(), errRelatedNotSynced)
	list()
	require.Empty(t, h.events.Events, "waiting is no error")
	require.Empty(t, h.hook.got(metacontroller.HookSync), "the hook never sees half the truth")
	h.eventually()
	related := h.hook.last(t, metacontroller.HookSync).Related
	require.Len(t, related, 1)
	require.Len(t, related["Secret.v1"], 1)
	require.Contains(t, related["Secret.v1"], "crawl/a")
	require.Len(t, h.hook.got(metacontroller.HookCustomize), 1)
}

func TestKindsWithoutMatchesArePresent(t *testing.T) {
	h := newHarness(t, proxy())
	relate(h, `{"apiVersion":"v1","resource":"secrets","names":["a"]},{"apiVersion":"v1","resource":"nodes","names":["n"]}`)
	h.eventually()
	related := h.hook.last(t, metacontroller.HookSync).Related
	require.Len(t, related, 2)
	require.NotNil(t, related["Secret.v1"])
	require.NotNil(t, related["Node.v1"])
}

func TestCustomizeIsCachedByGenerationFor20Minutes(t *testing.T) {
	h := newHarness(t, proxy())
	ask := func(parent *object) int {
		_, err := h.related.rulesFor(h.ctx, parent)
		require.NoError(t, err)
		return len(h.hook.got(metacontroller.HookCustomize))
	}
	require.Equal(t, 1, ask(proxy()))
	require.Equal(t, 1, ask(proxy(func(o *object) { o.SetLabels(map[string]string{"a": "b"}) })), "labels do not count")
	require.Equal(t, 2, ask(proxy(func(o *object) { o.SetGeneration(2) })))
	require.Equal(t, 3, ask(proxy(func(o *object) { o.SetUID("another") })))
	h.clock.Step(20*time.Minute - time.Second)
	require.Equal(t, 3, ask(proxy()))
	h.clock.Step(time.Second)
	require.Equal(t, 4, ask(proxy()))
	require.Equal(t, 1, h.related.rules.Len(), "what has expired is dropped")
}

func TestCustomizeErrors(t *testing.T) {
	for answer, want := range map[string]string{
		`{"relatedResources":[null]}`: "rule 0 is null",
		`{"relatedResources":[{"apiVersion":"v1","resource":"secrets"},{"names":["a"],"labelSelector":{}}]}`: "rule 1 has both names",
		`{"relatedResources":[{"apiVersion":"v1","resource":"gadgets"}]}`:                                    "find resource gadgets in v1",
		`{"related":[]}`: `customize hook: decode response: unknown field "related"`,
	} {
		h := newHarness(t, proxy())
		h.hook.say(metacontroller.HookCustomize, answer)
		require.ErrorContains(t, h.sync(), want)
		require.Empty(t, h.hook.got(metacontroller.HookSync), "no customize answer, no sync")
		require.Contains(t, <-h.events.Events, "Warning SyncError Sync error: ")
	}
}

func TestNullCustomizeResponseHasNoRules(t *testing.T) {
	h := newHarness(t, proxy())
	h.hook.say(metacontroller.HookCustomize, `null`)
	require.NoError(t, h.sync())
	require.Empty(t, h.hook.last(t, metacontroller.HookSync).Related)
}

func TestRelatedEventsEnqueueTheirParents(t *testing.T) {
	h := newHarness(t, proxy())
	relate(h, `{"apiVersion":"v1","resource":"secrets","namespace":"crawl","names":["a"]}`)
	h.drain()
	handler := h.relatedHandler(h.ctx)
	newer := func(o *object) { o.SetResourceVersion("6") }

	handler.OnAdd(secret("a"), false)
	require.Equal(t, []string{"crawl/fra-1"}, h.drain())
	handler.OnAdd(secret("b"), false)
	require.Empty(t, h.drain())
	handler.OnUpdate(secret("a"), secret("a"))
	require.Empty(t, h.drain(), "a re-list")
	handler.OnUpdate(secret("a"), secret("a", newer))
	require.Equal(t, []string{"crawl/fra-1"}, h.drain())
	handler.OnUpdate(secret("a"), secret("b", newer))
	require.Equal(t, []string{"crawl/fra-1"}, h.drain(), "what it was counts as well")
	handler.OnDelete(secret("a"))
	require.Equal(t, []string{"crawl/fra-1"}, h.drain())
	handler.OnAdd(parse(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"crawl"}}`), false)
	require.Empty(t, h.drain(), "another kind of that name")
}

func TestRelatedEventsWithAFailingCustomizeHook(t *testing.T) {
	h := newHarness(t, proxy())
	h.drain()
	h.hook.on(metacontroller.HookCustomize, func(call) reply { return reply{code: 500} })
	h.relatedHandler(h.ctx).OnAdd(secret("a"), false)
	require.Empty(t, h.drain())
}
