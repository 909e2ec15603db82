package webhooks

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

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
		require.Empty(t, c.cloud.calls, "what is wanted is not known, so that nothing is asked for")
	}
}

// hidesTheWantedState reports whether nobody can tell from a sync request what
// the instance should be: the provider is not in the config, or the Secret with
// the user data is not there or does not count.
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
