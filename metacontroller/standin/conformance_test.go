package standin

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

type recording struct {
	name string
	metacontroller.Request
	body []byte
}

func recordings(t *testing.T) []recording {
	t.Helper()
	files, err := filepath.Glob("../testdata/recorded/*.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 12)
	var out []recording
	for _, file := range files {
		r := recording{name: strings.TrimSuffix(filepath.Base(file), ".json")}
		r.body, err = os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(r.body, &r.Request))
		out = append(out, r)
	}
	return out
}

// objects are the parent, the children and the related objects of a recording.
func (r *recording) objects(t *testing.T) []*object {
	t.Helper()
	out := []*object{parse(t, string(r.Parent))}
	for _, byKind := range []metacontroller.Objects{r.Children, r.Related} {
		for _, objects := range byKind {
			for _, raw := range objects {
				out = append(out, parse(t, string(raw)))
			}
		}
	}
	return out
}

// rules is what the recorded controller's customize hook answered: the Secret
// that the spec refers to.
func rules(t *testing.T, parent *object) string {
	t.Helper()
	spec, _ := parent.Object["spec"].(map[string]any)
	cloudInit, ok := spec["cloudInit"].(map[string]any)
	if !ok {
		return `{"relatedResources":[]}`
	}
	name := cloudInit["secretRef"].(map[string]any)["name"].(string)
	return `{"relatedResources":[{"apiVersion":"v1","resource":"secrets","namespace":"crawl","names":["` + name + `"]}]}`
}

// From the API objects of each recording the stand-in builds the request that the
// real Metacontroller sent.
func TestRequestsAreAsRecorded(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			h := newHarness(t, r.objects(t)...)
			h.hook.say(metacontroller.HookCustomize, rules(t, parse(t, string(r.Parent))))
			keep := reply{code: 500, body: "seen enough"}
			h.hook.on(metacontroller.HookSync, func(call) reply { return keep })
			h.hook.on(metacontroller.HookFinalize, func(call) reply { return keep })
			hook := strings.Split(r.name, "-")[1]
			require.Eventually(t, func() bool {
				require.Error(t, h.sync())
				return len(h.hook.got(hook)) > 0
			}, patience, 5*time.Millisecond, "related objects are listed at last")

			got := h.hook.last(t, hook)
			requireSameEnvelope(t, r.body, got.body)
			require.Len(t, h.hook.got(metacontroller.HookCustomize), 1, "the answer is cached")
			require.Equal(t, metacontroller.HookCustomize, h.hook.order()[0])
		})
	}
}

// requireSameEnvelope compares two requests but for the controller's metadata,
// which a manifest file lacks.
func requireSameEnvelope(t *testing.T, want, got []byte) {
	t.Helper()
	wanted, sent := fields(t, want), fields(t, got)
	for name := range wanted {
		if name == "controller" {
			continue
		}
		require.JSONEq(t, string(wanted[name]), string(sent[name]), name)
	}
	require.Len(t, sent, len(wanted))
	wantedController, sentController := fields(t, wanted["controller"]), fields(t, sent["controller"])
	require.Len(t, sentController, len(wantedController))
	for _, name := range []string{"apiVersion", "kind", "status"} {
		require.JSONEq(t, string(wantedController[name]), string(sentController[name]))
	}
	require.Equal(t, keys(t, wantedController["spec"]), keys(t, sentController["spec"]))
}

func fields(t *testing.T, body []byte) map[string]json.RawMessage {
	t.Helper()
	var out map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body, &out))
	return out
}

// keys returns the shape of a JSON value: its object keys in order, without its
// scalars.
func keys(t *testing.T, body []byte) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(body)))
	var out strings.Builder
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case json.Delim:
			out.WriteString(token.String())
		case string:
			if !strings.Contains(token, "//") { // not the hooks' URLs
				out.WriteString(token + " ")
			}
		}
	}
}

// Applying the last-applied configuration again does not change the recorded Pods,
// although admission and kubelet have set half of their fields.
func TestRecordedPodsAreAtRest(t *testing.T) {
	seen := 0
	for _, r := range recordings(t) {
		for _, raw := range r.Children["Pod.v1"] {
			observed := parse(t, string(raw))
			last, err := lastApplied(observed)
			require.NoError(t, err)
			require.NotNil(t, last)
			got, err := applied(observed, &object{Object: last})
			require.NoError(t, err)
			require.Equal(t, observed.Object, got.Object, r.name)
			seen++
		}
	}
	require.GreaterOrEqual(t, seen, 6)
}
