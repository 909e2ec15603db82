package webhooks

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

func TestContractDecidesPurely(t *testing.T) {
	providers := Providers{"pods": testProvider()}
	forEachCase(t, func(t *testing.T, c contractCase) {
		observe := func() *Observation {
			req, err := metacontroller.DecodeRequest(bytes.NewReader(c.body), podKind, probeKind)
			require.NoError(t, err)
			o, err := observe(req, providers, true, c.now)
			require.NoError(t, err)
			o.Timing, o.MayReplace = testTiming(), !c.budgetUsed
			return o
		}
		o := observe()
		first, err := decide(*o)
		require.NoError(t, err)
		_, err = answer(o, &first)
		require.NoError(t, err)
		require.Equal(t, observe(), o, "deciding changes nothing")
		again, err := decide(*o)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}, "sync", "finalize")
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
	for _, child := range v2Of(t, answer).Children {
		strictChild(t, child)
	}
}

func TestContractNumbersStayIntegers(t *testing.T) {
	forEachCase(t, numbersStayIntegers, "sync", "finalize")
}

func numbersStayIntegers(t *testing.T, c contractCase) {
	t.Helper()
	var answer struct{ Status, Children any }
	d := json.NewDecoder(bytes.NewReader(c.answer(t)))
	d.UseNumber()
	require.NoError(t, d.Decode(&answer))
	walk("", []any{answer.Status, answer.Children}, func(path string, v any) {
		if n, ok := v.(json.Number); ok {
			i, err := n.Int64()
			require.NoError(t, err, "%s: %s", path, n)
			require.LessOrEqual(t, i, int64(math.MaxInt32), "%s: larger than any number that we have", path)
		}
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
	require.Contains(t, []string{v1alpha1.ReasonUnknownProvider, v1alpha1.ReasonCloudInitError}, a.reason())
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
	if text(spec, "provider") != "pods" {
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
