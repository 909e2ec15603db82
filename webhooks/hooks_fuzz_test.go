package webhooks

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// seeds adds the recorded requests and the fixtures of a hook. More of them,
// that fuzzing found, are in testdata/fuzz.
func seeds(f *testing.F, hook string) {
	f.Helper()
	for _, pattern := range []string{recordedDir + "/*" + hook + "*.json", "testdata/hooks/" + hook + "/*.request.json"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, files)
		for _, file := range files {
			body, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(body)
		}
	}
	f.Add([]byte(`{"parent":{"kind":"Proxy","metadata":{"namespace":"n","name":"a","uid":"b"},"spec":{"mode":"External","endpoint":{"host":"h","port":1}}},"children":{"Pod.v1":{},"ProxyProbe.crawl.example.com/v1alpha1":{}}}`))
	f.Add([]byte(`null`))
}

// fuzzHook sends anything at all to a hook: it refuses in a few words, or
// answers what keeps to the points of the contract that hold for any request.
func fuzzHook(f *testing.F, hook string, points ...func(t *testing.T, c contractCase)) {
	seeds(f, hook)
	f.Fuzz(func(t *testing.T, body []byte) {
		c := contractCase{hook: hook, body: body, now: proxytest.Noon()}
		rec := post(t, c.hooks(c.now).Handler(nil), hook, bytes.NewReader(body))
		switch rec.Code {
		case http.StatusOK:
			c.known = rec.Body.Bytes()
			for _, point := range points {
				point(t, c)
			}
		case http.StatusBadRequest, http.StatusInternalServerError:
			require.NotContains(t, rec.Body.String(), "a defect of webhooks", "it panicked")
			require.NotEmpty(t, rec.Body.String())
			require.LessOrEqual(t, rec.Body.Len(), 1000+10)
			require.NotEqual(t, "application/json", rec.Header().Get("Content-Type"), "no answer beside a 200")
		default:
			require.Fail(t, "unexpected code", rec.Code)
		}
	})
}

func FuzzSync(f *testing.F) {
	fuzzHook(f, "sync", neverNull, strictRoundTrip, sameInputSameBytes, numbersStayIntegers, noCountersInStatus, resyncsWhilePending, unknownNeverMeansDelete)
}

func FuzzFinalize(f *testing.F) {
	fuzzHook(f, "finalize", neverNull, strictRoundTrip, sameInputSameBytes, numbersStayIntegers, noCountersInStatus, resyncsWhilePending)
}

// FuzzAdapter lets the cloud adapter answer anything at all.
func FuzzAdapter(f *testing.F) {
	requests, err := filepath.Glob("testdata/hooks/*/vm-*.request.json")
	require.NoError(f, err)
	answers := []adapter.Instance{*proxytest.RunningVM(), {State: adapter.StateAbsent, Action: adapter.ActionNone, Failure: &adapter.Failure{Class: adapter.FailurePermanent, Message: "refused"}}, {State: adapter.StateAbsent, Action: adapter.ActionInserting}, *proxytest.VM(adapter.StateStopping), {State: adapter.StateAbsent, IP: "x"}, {State: adapter.StateRunning, Action: adapter.ActionNone, ProviderID: "zones/z/instances/i", InstanceID: proxytest.VMID}, {State: adapter.StateProvisioning, Action: adapter.ActionInserting}}
	for i, file := range requests {
		body, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(body, mustJSON(f, answers[i%len(answers)]))
	}
	fits := statusFitsTheCRD(f)
	f.Fuzz(func(t *testing.T, body, answer []byte) {
		var lie adapter.Instance
		if hookFor(body) == "" || json.Unmarshal(answer, &lie) != nil {
			return
		}
		c := contractCase{hook: hookFor(body), body: body, now: proxytest.Noon(), cloud: &fakeAdapter{lie: &lie}}
		rec := post(t, c.hooks(c.now).Handler(nil), c.hook, bytes.NewReader(body))
		if rec.Code != http.StatusOK || c.hook == "customize" {
			require.NotContains(t, rec.Body.String(), "a defect of webhooks", "it panicked")
			return
		}
		c.known = rec.Body.Bytes()
		for _, point := range []func(t *testing.T, c contractCase){neverNull, strictRoundTrip, sameInputSameBytes, numbersStayIntegers, noCountersInStatus, resyncsWhilePending} {
			point(t, c)
		}
		if _, err := proxy.VMInstance(lie); err != nil && text(decodedJSON(t, body), "parent", "spec", "provider") == proxytest.CloudProvider && lie.State != "" {
			require.False(t, *v2Of(t, c.known).Finalized && !abandons(t, body), "a lie confirms nothing")
		}
		if len(c.cloud.calls) > 0 {
			fits(t, c)
		}
	})
}

func abandons(t testing.TB, body []byte) bool {
	t.Helper()
	return text(decodedJSON(t, body), "parent", "metadata", "annotations", v1alpha1.AnnotationAbandon) == "true"
}

func FuzzCustomize(f *testing.F) {
	fuzzHook(f, "customize", neverNull, strictRoundTrip, sameInputSameBytes)
}
