package webhooks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func TestProbeChildGolden(t *testing.T) {
	o := observationOf(proxytest.Managed())
	o.Proxy.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
	child, err := probeChild(o.Proxy, probeSpec(t, o))
	require.NoError(t, err)
	golden(t, "children/probe.json", indented(t, child))
}

func TestProbeChildWritesDurationsAsTheCRDWantsThem(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "1s", 30 * time.Second: "30s", time.Minute: "1m0s", time.Hour: "1h0m0s",
		1500 * time.Millisecond: "1500ms", 100 * time.Millisecond: "100ms", 61*time.Second + time.Millisecond: "61001ms",
	} {
		o := observationOf(proxytest.Managed())
		o.Proxy.Spec.HealthCheck.Interval = metav1.Duration{Duration: d}
		child, err := probeChild(o.Proxy, probeSpec(t, o))
		require.NoError(t, err)
		got, _, err := unstructured.NestedString(child.Object, "spec", "healthCheck", "interval")
		require.NoError(t, err)
		assert.Equal(t, want, got)
		parsed, err := time.ParseDuration(got)
		require.NoError(t, err)
		assert.Equal(t, d, parsed)
	}
}

func TestProbeChildWithoutHealthCheck(t *testing.T) {
	child, err := probeChild(proxytest.Managed(), &v1alpha1.ProxyProbeSpec{InstanceID: "x", Host: "h", Port: 1})
	require.NoError(t, err)
	_, found, err := unstructured.NestedMap(child.Object, "spec", "healthCheck")
	require.NoError(t, err)
	assert.False(t, found)
}

func TestPrune(t *testing.T) {
	in := `{"a":null,"b":{},"c":{"d":{"e":null}},"f":[],"g":[1,{},{"h":null}],"i":"","j":0,"k":false}`
	var v any
	require.NoError(t, json.Unmarshal([]byte(in), &v))
	assert.JSONEq(t, `{"g":[1,{},{}],"i":"","j":0,"k":false}`, string(mustJSON(t, prune(v))))
	assert.Nil(t, prune(map[string]any{"a": map[string]any{}}))
}

func TestKeptPodOnlyNamesIt(t *testing.T) {
	o := observationOf(proxytest.Managed())
	o.Instance = runningPod()
	children, err := fixtureHooks().children(o, &proxy.Decision{Instance: proxy.KeepInstance})
	require.NoError(t, err)
	require.Len(t, children, 1)
	assert.Equal(t, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": v1alpha1.InstanceName(o.Proxy.UID), "namespace": "crawl"},
	}, children[0].Object)
}

func TestVMIsNoChild(t *testing.T) {
	for _, action := range []proxy.InstanceAction{proxy.MakeInstance, proxy.KeepInstance, proxy.RemoveInstance} {
		o := observationOf(proxytest.Cloud())
		o.Provider = &proxy.Provider{Cloud: proxytest.GCP()}
		in, err := proxy.VMInstance(*proxytest.RunningVM())
		require.NoError(t, err)
		o.Instance = in
		children, err := fixtureHooks().children(o, &proxy.Decision{Instance: action})
		require.NoError(t, err)
		assert.Empty(t, children, action)
	}
}

func TestProbeChildLacksServerFields(t *testing.T) {
	o := observationOf(proxytest.Managed())
	child, err := probeChild(o.Proxy, probeSpec(t, o))
	require.NoError(t, err)
	assert.NotContains(t, child.Object, "status")
	assert.NotContains(t, child.Object["metadata"], "creationTimestamp")
}

func TestDeletedChildren(t *testing.T) {
	o := observationOf(proxytest.Managed())
	o.Instance, o.Probe = runningPod(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
	o.Strays = []proxy.Stray{
		{Object: identity("v1", "Pod", "crawl", "old")},
		{Object: identity("v1", "Pod", "crawl", "older"), Terminating: true},
	}
	name := v1alpha1.InstanceName(o.Proxy.UID)
	pod, probe, old := identity("v1", "Pod", "crawl", name), identity("x", "ProxyProbe", "crawl", "fra-1"), o.Strays[0].Object
	answerWith := func(children ...*unstructured.Unstructured) *metacontroller.Response {
		return &metacontroller.Response{Children: children}
	}
	assert.Equal(t, []observedChild{{"Pod", name, false}, {"ProxyProbe", "fra-1", false}, {"Pod", "old", true}}, deleted(o, answerWith()))
	assert.Equal(t, []observedChild{{"ProxyProbe", "fra-1", false}}, deleted(o, answerWith(pod, old)))
	assert.Empty(t, deleted(o, answerWith(pod, probe, old)))

	o.Instance.Terminating = true
	assert.Equal(t, []observedChild{{"ProxyProbe", "fra-1", false}, {"Pod", "old", true}}, deleted(o, answerWith()), "a child that terminates already does not count")
}

func TestTerminatingChildrenAreNotListed(t *testing.T) {
	o := observationOf(proxytest.Managed())
	o.Provider, o.Instance = nil, runningPod()
	o.Instance.Terminating = true
	o.Strays = []proxy.Stray{{Object: identity("v1", "Pod", "crawl", "older"), Terminating: true}}
	o.Wanted = o.Want()
	d, err := proxy.Decide(o)
	require.NoError(t, err)
	children, err := fixtureHooks().children(o, &d)
	require.NoError(t, err)
	assert.Empty(t, children)
}

// A stray ProxyProbe is listed with its spec: under the update method InPlace
// its name alone would mean that the spec is to go.
func TestStraysAreListedWithTheirSpec(t *testing.T) {
	probe, err := decodeStray(probeKind, "crawl/x", []byte(`{"apiVersion":"crawl.example.com/v1alpha1","kind":"ProxyProbe","metadata":{"namespace":"crawl","name":"x","uid":"u","labels":{"controller-uid":"y"}},"spec":{"host":"h","port":1},"status":{"verdict":"Healthy"}}`))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{
		"apiVersion": "crawl.example.com/v1alpha1", "kind": "ProxyProbe",
		"metadata": map[string]any{"namespace": "crawl", "name": "x"},
		"spec":     map[string]any{"host": "h", "port": int64(1)},
	}, probe.Object.Object)

	pod, err := decodeStray(podKind, "crawl/x", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"crawl","name":"x","deletionTimestamp":"2026-11-29T11:59:59Z"},"spec":{"nodeName":"n"}}`))
	require.NoError(t, err)
	assert.True(t, pod.Terminating)
	assert.NotContains(t, pod.Object.Object, "spec")
}

// strictChild decodes a child into its real type, which refuses every field
// that the type does not have.
func strictChild(t *testing.T, child map[string]any) {
	t.Helper()
	switch child["kind"] {
	case "Pod":
		readV2[corev1.Pod](t, mustJSON(t, child))
	case "ProxyProbe":
		readV2[v1alpha1.ProxyProbe](t, mustJSON(t, child))
	default:
		require.Fail(t, "a child of another kind", "%v", child["kind"])
	}
}

func TestContractChildrenAreComplete(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		namespace := text(decodedJSON(t, c.body), "parent", "metadata", "namespace")
		seen := map[string]bool{}
		for _, child := range v2Of(t, c.answer(t)).Children {
			want := map[string]string{"Pod": "v1", "ProxyProbe": "crawl.example.com/v1alpha1"}[text(child, "kind")]
			require.NotEmpty(t, want, child["kind"])
			require.Equal(t, want, child["apiVersion"])
			require.Equal(t, namespace, text(child, "metadata", "namespace"), "children of a namespaced parent are in its namespace")
			name := text(child, "metadata", "name")
			require.Empty(t, validation.IsDNS1123Label(name), name)
			require.False(t, seen[want+name], "listed twice")
			seen[want+name] = true
			for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences", "deletionTimestamp"} {
				require.NotContains(t, child["metadata"], field)
			}
			require.NotContains(t, child, "status")
			require.Nil(t, at(child, "metadata", "labels", "controller-uid"), "Metacontroller sets it")
			walk("", child, func(path string, v any) {
				require.NotContains(t, []any{nil, ""}, v, "the API server drops %s", path)
				if m, ok := v.(map[string]any); ok {
					require.NotEmpty(t, m, path)
				}
			})
		}
	}, "sync", "finalize")
}

// quantityFields are where our Pods have quantities.
var quantityFields = []string{".requests.", ".limits.", ".sizeLimit"}

func TestContractQuantitiesAreCanonical(t *testing.T) {
	found := map[string]bool{}
	forEachCase(t, func(t *testing.T, c contractCase) {
		for _, child := range v2Of(t, c.answer(t)).Children {
			walk("", child, func(path string, v any) {
				written, isText := v.(string)
				if !isText || !slices.ContainsFunc(quantityFields, func(f string) bool { return strings.Contains(path, f) }) {
					return
				}
				found[written] = true
				q, err := resource.ParseQuantity(written)
				require.NoError(t, err)
				require.Equal(t, q.String(), written, path)
			})
		}
	}, "sync")
	require.Equal(t, map[string]bool{"1": true, "1Gi": true, "16Mi": true}, found, "the provider config says 1000m and 1024Mi")
}

func TestContractSameInputSameBytes(t *testing.T) { forEachCase(t, sameInputSameBytes) }

func sameInputSameBytes(t *testing.T, c contractCase) {
	t.Helper()
	first, h := c.answer(t), c.hooks(c.now)
	for range 2 {
		sameBytes(t, first, answerTo(t, h, c.hook, c.body), "other hooks, as in another process, and those again")
	}
}

func TestContractNeverNull(t *testing.T) { forEachCase(t, neverNull) }

func neverNull(t *testing.T, c contractCase) {
	t.Helper()
	answer := c.answer(t)
	require.Equal(t, byte('{'), answer[0])
	require.NotEqual(t, "{}", string(answer))
	walk("", decodedJSON(t, answer), func(path string, v any) {
		require.NotNil(t, v, path)
	})
	if c.hook == "customize" {
		require.NotNil(t, readV2[v2Customize](t, answer).RelatedResources)
		return
	}
	v2Of(t, answer)
}

func TestContractStrictRoundTrip(t *testing.T) { forEachCase(t, strictRoundTrip) }

func strictRoundTrip(t *testing.T, c contractCase) {
	t.Helper()
	answer := c.answer(t)
	if c.hook == "customize" {
		require.JSONEq(t, string(answer), string(mustJSON(t, readV2[v2Customize](t, answer))))
		return
	}
	require.JSONEq(t, string(answer), string(mustJSON(t, v2Of(t, answer))))
	for _, child := range c.made(t, answer) {
		strictChild(t, child)
	}
}

func untyped(children []map[string]any) list {
	out := list{}
	for _, c := range children {
		out = append(out, c)
	}
	return out
}

// made are the children of an answer that the hook has made. The others are
// strays, listed as they were observed.
func (c contractCase) made(t testing.TB, answer []byte) []map[string]any {
	t.Helper()
	parent := at(decodedJSON(t, c.body), "parent")
	names := map[string]string{
		"Pod":        v1alpha1.InstanceName(types.UID(text(parent, "metadata", "uid"))),
		"ProxyProbe": text(parent, "metadata", "name"),
	}
	return slices.DeleteFunc(v2Of(t, answer).Children, func(child map[string]any) bool {
		return names[text(child, "kind")] != text(child, "metadata", "name") ||
			text(child, "metadata", "namespace") != text(parent, "metadata", "namespace")
	})
}

func TestContractNumbersStayIntegers(t *testing.T) {
	forEachCase(t, numbersStayIntegers, "sync", "finalize")
}

func numbersStayIntegers(t *testing.T, c contractCase) {
	t.Helper()
	answer := c.answer(t)
	walk("", object{"status": v2Of(t, answer).Status, "children": untyped(c.made(t, answer))}, func(path string, v any) {
		_, inexact := v.(float64)
		require.False(t, inexact, "%s: %v has a fraction or an exponent", path, v)
	})
}

func TestContractUnknownNeverMeansDelete(t *testing.T) {
	troubled := 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		unknownNeverMeansDelete(t, c)
		if hidesTheWantedState(t, c.body) {
			troubled++
		}
	}, "sync")
	require.Greater(t, troubled, 20, "the cases hold such requests")
}

func unknownNeverMeansDelete(t *testing.T, c contractCase) {
	t.Helper()
	if !hidesTheWantedState(t, c.body) {
		return
	}
	a := v2Of(t, c.answer(t))
	require.Subset(t, a.listed(), livingIn(t, c.body))
	require.Positive(t, *a.ResyncAfterSeconds)
	require.Contains(t, []string{v1alpha1.ReasonUnknownProvider, v1alpha1.ReasonCloudInitError, v1alpha1.ReasonPermanentError}, a.reason())
	if c.cloud != nil {
		require.Empty(t, c.cloud.calls, "no request while the wanted state is unknown")
	}
}

// hidesTheWantedState reports whether the wanted instance is unknown in a sync
// request: the provider is not in the config, or the Secret with the user data is
// missing or has no label.
func hidesTheWantedState(t testing.TB, body []byte) bool {
	t.Helper()
	request := decodedJSON(t, body)
	spec := at(request, "parent", "spec")
	if text(spec, "mode") != "Managed" {
		return false
	}
	switch pods := at(request, "children", podKind).(object); text(spec, "provider") {
	case "pods":
	case proxytest.CloudProvider:
		_, otherKind := pods[text(request, "parent", "metadata", "namespace")+"/"+v1alpha1.InstanceName(types.UID(text(request, "parent", "metadata", "uid")))]
		if otherKind || text(spec, "placement", "image") == "" {
			return true
		}
	default:
		return true
	}
	ref := at(spec, "cloudInit", "secretRef")
	if ref == nil {
		return false
	}
	key := text(request, "parent", "metadata", "namespace") + "/" + text(ref, "name")
	secret := at(request, "related", secretKind, key)
	return text(secret, "metadata", "labels", "crawl.example.com/cloud-init") != "true" || text(secret, "data", text(ref, "key")) == ""
}

// livingIn are the kinds and names of the children in a request that are not
// being deleted.
func livingIn(t testing.TB, body []byte) []string {
	t.Helper()
	out := []string{}
	for kind, objects := range at(decodedJSON(t, body), "children").(object) {
		kind, _, _ = strings.Cut(kind, ".")
		objects, _ := objects.(object)
		for _, child := range objects {
			if at(child, "metadata", "deletionTimestamp") == nil {
				out = append(out, kind+" "+text(child, "metadata", "name"))
			}
		}
	}
	return out
}
