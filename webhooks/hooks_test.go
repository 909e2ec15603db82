package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

const recordedDir = "../metacontroller/testdata/recorded"

// answerTo runs the hook that the name begins with, or is in, on a request.
func answerTo(t testing.TB, h *Hooks, hook string, body []byte) []byte {
	t.Helper()
	fn := map[string]hookFunc{"customize": h.customize, "sync": h.sync, "finalize": h.finalize}[hook]
	require.NotNil(t, fn, hook)
	out, err := fn(context.Background(), bytes.NewReader(body))
	require.NoError(t, err)
	return out
}

// reviewable is an answer as a golden file shows it: indented, and with a mark
// in the place of the squid configuration, which has golden files of its own.
func reviewable(t *testing.T, answer []byte) []byte {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(answer, &v))
	var shorten func(v any)
	shorten = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if v["name"] == v1alpha1.PodConfigEnv {
				v["value"] = "..."
			}
			for _, e := range v {
				shorten(e)
			}
		case []any:
			for _, e := range v {
				shorten(e)
			}
		}
	}
	shorten(v)
	return indented(t, v)
}

func fixtureHooks() *Hooks {
	o := testOptions()
	o.CloudInitSecrets = true
	return New(o)
}

func TestHookFixtures(t *testing.T) {
	files, err := filepath.Glob("testdata/hooks/*/*.request.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		hook, name := filepath.Base(filepath.Dir(file)), strings.TrimSuffix(filepath.Base(file), ".request.json")
		t.Run(hook+"/"+name, func(t *testing.T) {
			body, err := os.ReadFile(file)
			require.NoError(t, err)
			cloud := fixtureAdapter(t, file)
			h := fixtureHooks()
			if cloud != nil {
				h = hooksWith(cloud)
			}
			answer := answerTo(t, h, hook, body)
			if cloud != nil {
				golden(t, filepath.Join("hooks", hook, name+".calls.json"), indented(t, cloud.calls))
			}
			golden(t, filepath.Join("hooks", hook, name+".response.json"), reviewable(t, answer))
		})
	}
}

// What a real Metacontroller sent, moment by moment.
func TestRecordedRequests(t *testing.T) {
	files, err := filepath.Glob(recordedDir + "/*.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 10)
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			body, err := os.ReadFile(file)
			require.NoError(t, err)
			answer := answerTo(t, recordedHooks(), hookOf(t, name), body)
			golden(t, "recorded/"+name, reviewable(t, answer))
		})
	}
}

// recordedAt is the minute of the recording.
func recordedAt() time.Time { return time.Date(2026, 11, 29, 18, 59, 50, 0, time.UTC) }

func recordedHooks() *Hooks {
	o := testOptions()
	o.CloudInitSecrets = true
	o.Clock = clocktesting.NewFakePassiveClock(recordedAt())
	return New(o)
}

func hookOf(t testing.TB, file string) string {
	t.Helper()
	for _, hook := range []string{"customize", "sync", "finalize"} {
		if strings.Contains(file, hook) {
			return hook
		}
	}
	require.Fail(t, "no hook in the name of "+file)
	return ""
}

// The phases and children of the recorded walk.
func TestRecordedWalk(t *testing.T) {
	for file, want := range map[string]struct {
		phase    string
		children []string
	}{
		"2-sync-no-children":          {"Provisioning", []string{"Pod"}},
		"3-sync-pod-pending":          {"Provisioning", []string{"Pod"}},
		"4-sync-pod-running":          {"Probing", []string{"Pod", "ProxyProbe"}},
		"5-sync-related-secret":       {"Probing", []string{"Pod", "ProxyProbe"}},
		"5a-sync-related-secret-gone": {"Probing", []string{"Pod", "ProxyProbe"}},
		"6a-sync-spec-changed":        {"Replacing", nil},
		"6-sync-pod-deleting":         {"Replacing", nil},
		"6b-sync-pod-gone":            {"Provisioning", []string{"Pod"}},
		"7-finalize":                  {"Deleting", nil},
		"8-finalize-last":             {"Deleting", nil},
	} {
		t.Run(file, func(t *testing.T) {
			body, err := os.ReadFile(recordedDir + "/" + file + ".json")
			require.NoError(t, err)
			var resp metacontroller.Response
			require.NoError(t, json.Unmarshal(answerTo(t, recordedHooks(), hookOf(t, file), body), &resp))
			var kinds []string
			for _, c := range resp.Children {
				kinds = append(kinds, c.GetKind())
			}
			assert.Equal(t, want.phase, resp.Status["phase"])
			assert.Equal(t, want.children, kinds)
			assert.Equal(t, file == "8-finalize-last", resp.Finalized)
		})
	}
}

func TestHooksRefuseTheOtherHooksRequests(t *testing.T) {
	h := fixtureHooks()
	_, err := h.sync(t.Context(), bytes.NewReader(request{proxy: proxytest.Managed(), finalizing: true}.body(t)))
	require.ErrorIs(t, err, metacontroller.ErrBadRequest)
	require.ErrorContains(t, err, "check the hook URLs")
	_, err = h.finalize(t.Context(), bytes.NewReader(request{proxy: proxytest.Managed()}.body(t)))
	require.ErrorIs(t, err, metacontroller.ErrBadRequest)
}

// A field that a newer Metacontroller adds changes no answer: it is counted each
// time and logged once.
func TestUnknownEnvelopeFieldIsCountedAndLoggedOnce(t *testing.T) {
	var logs bytes.Buffer
	o := testOptions()
	o.Log = slog.New(slog.NewTextHandler(&logs, nil))
	h := New(o)
	r := request{proxy: proxytest.Managed()}
	for hook, body := range map[string][]byte{"sync": r.body(t), "customize": r.customizeBody(t)} {
		want := answerTo(t, fixtureHooks(), hook, body)
		extended := append([]byte(`{"attachments":{"CANARY":1},`), body[1:]...)
		for range 2 {
			assert.Equal(t, string(want), string(answerTo(t, h, hook, extended)))
		}
	}
	assert.InDelta(t, 4, testutil.ToFloat64(h.metrics.unknown), 0)
	assert.Equal(t, 1, strings.Count(logs.String(), "field=attachments"))
	assert.NotContains(t, logs.String(), "CANARY")
}

func TestLoggedUnknownFieldsAreBounded(t *testing.T) {
	var logs bytes.Buffer
	o := testOptions()
	o.Log = slog.New(slog.NewTextHandler(&logs, nil))
	h := New(o)
	for i := range maxUnknownFields + 1 {
		h.recordUnknown([]string{fmt.Sprintf("field-%d", i)})
	}
	assert.Equal(t, maxUnknownFields, strings.Count(logs.String(), "\n"))
	assert.InDelta(t, maxUnknownFields+1, testutil.ToFloat64(h.metrics.unknown), 0)
}

func TestHooksReadyOnceProvidersAreLoaded(t *testing.T) {
	o := testOptions()
	require.NoError(t, New(o).Ready())
	o = testOptions()
	o.Providers = nil
	require.ErrorIs(t, New(o).Ready(), ErrNotReady)
}

func TestManagedProxyLifecycle(t *testing.T) {
	w, h := &world{proxy: proxytest.Managed()}, fixtureHooks()
	ready := func() bool { return w.proxy.Status.Phase == v1alpha1.PhaseReady }
	w.until(t, h, "Ready", ready)
	require.Equal(t, int32(3128), w.proxy.Status.Port)

	w.proxy.Spec.Port, w.proxy.Generation = 3129, 4
	w.until(t, h, "replaced", func() bool { return ready() && w.proxy.Status.Port == 3129 })
	require.Equal(t, 2, w.pods)
	require.Equal(t, "pod-2", w.proxy.Status.InstanceID)

	w.evict()
	w.until(t, h, "healed", func() bool { return ready() && w.pods == 3 })

	w.finalizing = true
	w.until(t, h, "gone", func() bool { return w.gone })
	require.Nil(t, w.pod)
	require.Nil(t, w.probe)
}

func TestManagedProxyAtRestAnswersStayTheSame(t *testing.T) {
	w, h := &world{proxy: proxytest.Managed()}, fixtureHooks()
	w.until(t, h, "Ready", func() bool { return w.proxy.Status.Phase == v1alpha1.PhaseReady })
	body := request{proxy: w.proxy, pods: []*corev1.Pod{w.pod}, probes: []*v1alpha1.ProxyProbe{w.probe}}.body(t)
	first := answerTo(t, h, "sync", body)
	w.sync(t, h)
	body = request{proxy: w.proxy, pods: []*corev1.Pod{w.pod}, probes: []*v1alpha1.ProxyProbe{w.probe}}.body(t)
	require.Equal(t, string(first), string(answerTo(t, h, "sync", body)))
}

// Neither a release with another Pod template nor another provider config replaces
// running instances: the spec hash covers the Proxy alone.
func TestAnotherTemplateReplacesNothing(t *testing.T) {
	w, h := &world{proxy: proxytest.Managed()}, fixtureHooks()
	w.until(t, h, "Ready", w.leasable)
	before := w.proxy.Status.DeepCopy()

	o := testOptions()
	k := o.Providers["pods"].Pods
	k.Image, k.CPU, k.AllowPorts = "registry.example.com/squid:6.1", resource.MustParse("2"), []int{443}
	upgraded := New(o)
	for range 5 {
		w.round(t, upgraded)
		require.Equal(t, *before, w.proxy.Status)
		require.Equal(t, 1, w.pods)
	}
	w.evict()
	w.until(t, upgraded, "healed", func() bool { return w.leasable() && w.pods == 2 })
	require.Equal(t, k.Image, w.pod.Spec.Containers[0].Image, "the next one is made anew")
}

// readyFleet are that many Proxies of a kind, all Ready, with those Secrets.
func readyFleet(t *testing.T, h *Hooks, size int, proxy func() *v1alpha1.Proxy, secrets ...*corev1.Secret) []*world {
	t.Helper()
	fleet := make([]*world, size)
	for i := range fleet {
		p := proxy()
		p.UID, p.Name = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("fra-%d", i)
		fleet[i] = &world{proxy: p, secrets: secrets}
		fleet[i].until(t, h, "Ready", fleet[i].leasable)
	}
	return fleet
}

// An edit of the whole fleet goes through it piece by piece: never more than the
// budget is away, and in the end everything is new.
func TestFleetIsReplacedWithinTheBudget(t *testing.T) {
	const size, limit = 10, 2
	h := fixtureHooks()
	fleet := readyFleet(t, h, size, proxytest.Managed)
	for _, w := range fleet {
		w.proxy.Spec.Port = 3129
	}
	replaced := func() (n int) {
		for _, w := range fleet {
			if w.proxy.Status.Phase == v1alpha1.PhaseReady && w.proxy.Status.Port == 3129 {
				n++
			}
		}
		return n
	}
	for range 100 {
		away := 0
		for _, w := range fleet {
			w.round(t, h)
			if w.proxy.Status.Phase != v1alpha1.PhaseReady {
				away++
			}
		}
		require.LessOrEqual(t, away, limit)
		if replaced() == size {
			return
		}
	}
	require.Fail(t, "not all were replaced", "%d of %d", replaced(), size)
}

// A restarted process goes on with what the last one began. It meets those
// Proxies first, since they are polled far more often than those at rest.
func TestFleetBudgetSurvivesARestart(t *testing.T) {
	h := fixtureHooks()
	fleet := readyFleet(t, h, 10, proxytest.Managed)
	for _, w := range fleet {
		w.proxy.Spec.Port = 3129
		w.sync(t, h)
	}
	require.Equal(t, 2, h.budget.states()["pods"].underWay)

	for range 3 { // crashes on every round
		h = fixtureHooks()
		for _, w := range fleet {
			w.sync(t, h)
		}
		require.Equal(t, budgetState{seen: 10, underWay: 2, limit: 2, ready: true}, h.budget.states()["pods"])
	}
}

// Two syncs of one Proxy before the first status is visible: the second repeats
// the first.
func TestStaleStatusRepeatsTheAnswer(t *testing.T) {
	w, h := &world{proxy: proxytest.Managed()}, fixtureHooks()
	w.until(t, h, "Ready", func() bool { return w.proxy.Status.Phase == v1alpha1.PhaseReady })
	w.proxy.Spec.Port = 3129
	body := request{proxy: w.proxy, pods: []*corev1.Pod{w.pod}, probes: []*v1alpha1.ProxyProbe{w.probe}}.body(t)
	first := answerTo(t, h, "sync", body)
	for range 3 {
		require.True(t, bytes.Equal(first, answerTo(t, h, "sync", body)))
	}
}

// The example Proxies fit the types, the CRD and the example provider config,
// and the hooks know what to do with them.
func TestExampleProxies(t *testing.T) {
	providers, err := config.LoadProviders("../examples/providers.yaml")
	require.NoError(t, err)
	clouds, err := config.LoadProviders("../examples/providers-gcp.yaml")
	require.NoError(t, err)
	maps.Copy(providers, clouds)
	for file, probing := range map[string]bool{"proxy-managed.yaml": false, "proxy-external.yaml": true, "proxy-proved.yaml": true, "proxy-gcp.yaml": false} {
		t.Run(file, func(t *testing.T) {
			b, err := os.ReadFile("../examples/" + file)
			require.NoError(t, err)
			var p v1alpha1.Proxy
			require.NoError(t, yaml.UnmarshalStrict(b, &p))
			var raw map[string]any
			require.NoError(t, yaml.Unmarshal(b, &raw))
			assert.Empty(t, proxySchema(t).check("", raw))

			p.UID, p.Namespace, p.Generation = "uid", "crawl", 1
			o := observationOf(&p)
			if provider := providers[p.Spec.Provider]; provider != nil {
				o.Provider = &provider.Provider
			}
			if p.Spec.CloudInit != nil {
				o.CloudInit.Content = p.Spec.CloudInit.Inline
			}
			o.Wanted = o.Want()
			d, err := proxy.Decide(o)
			require.NoError(t, err)
			assert.Equal(t, probing, d.Probe != nil)
			assert.NotEqual(t, v1alpha1.PhaseFailed, d.Status.Phase)
		})
	}
}
