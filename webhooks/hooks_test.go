package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
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

// The walk of the recording, told by what matters.
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
	var u unknownFields
	for i := range maxUnknownFields {
		assert.True(t, u.first(fmt.Sprint(i)))
	}
	assert.False(t, u.first("one more"))
	assert.Len(t, u.logged, maxUnknownFields)
}

func TestHooksReadyOnceProvidersAreLoaded(t *testing.T) {
	o := testOptions()
	require.NoError(t, New(o).Ready())
	o = testOptions()
	o.Providers = nil
	require.ErrorIs(t, New(o).Ready(), ErrNotReady)
}
