package metacontroller_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	kjson "sigs.k8s.io/json"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

const manifest = "compositecontroller.yaml"

func TestManifest(t *testing.T) {
	c, err := metacontroller.LoadController(manifest)
	require.NoError(t, err)

	require.Equal(t, metacontroller.ControllerName, c.Name)
	require.Equal(t, metacontroller.Finalizer, c.FinalizerName())
	require.Equal(t, "metacontroller.io/compositecontroller-proxies", c.FinalizerName())
	require.Equal(t, metacontroller.ResourceRef{APIVersion: "crawl.example.com/v1alpha1", Resource: "proxies"}, c.Spec.ParentResource.ResourceRef)
	require.True(t, metacontroller.Enabled(c.Spec.ParentResource.IgnoreStatusChanges))
	require.True(t, metacontroller.Enabled(c.Spec.GenerateSelector))
	require.EqualValues(t, 300, *c.Spec.ResyncPeriodSeconds)

	methods := map[string]metacontroller.UpdateMethod{}
	for _, child := range c.Spec.ChildResources {
		methods[child.APIVersion+" "+child.Resource] = child.UpdateStrategy.Method
	}
	require.Equal(t, map[string]metacontroller.UpdateMethod{
		"v1 pods":                                metacontroller.OnDelete,
		"crawl.example.com/v1alpha1 proxyprobes": metacontroller.InPlace,
	}, methods)

	hooks := c.Spec.Hooks
	for name, hook := range map[string]*metacontroller.Hook{"customize": hooks.Customize, "sync": hooks.Sync, "finalize": hooks.Finalize} {
		require.NotNil(t, hook, name)
		require.Equal(t, metacontroller.HookVersion, hook.Version)
		require.Equal(t, 10*time.Second, hook.Webhook.Timeout.Duration)
		require.Equal(t, "https://webhooks.egress-proxies.svc:8443/hooks/"+name, hook.Webhook.URL)
	}
}

// The controller in recorded requests has our manifest's spec, in the same
// order and form as our types encode it.
func TestControllerEncodesAsRecorded(t *testing.T) {
	c, err := metacontroller.LoadController(manifest)
	require.NoError(t, err)
	var got, want struct {
		Spec   map[string]any `json:"spec"`
		Status map[string]any `json:"status"`
	}
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(encode(t, c)), &got))
	req, err := metacontroller.DecodeCustomizeRequest(bytes.NewReader(recorded(t)["1-customize"]))
	require.NoError(t, err)
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(req.Controller, &want))
	require.Equal(t, want, got)
}

func TestRenderWithOtherURLs(t *testing.T) {
	c, err := metacontroller.LoadController(manifest)
	require.NoError(t, err)
	require.NoError(t, c.SetHookBaseURL("http://127.0.0.1:8123/hooks/"))
	path := filepath.Join(t.TempDir(), "rendered.yaml")
	require.NoError(t, c.WriteFile(path))

	again, err := metacontroller.LoadController(path)
	require.NoError(t, err)
	require.Equal(t, c, again)
	require.Equal(t, "http://127.0.0.1:8123/hooks/finalize", again.Spec.Hooks.Finalize.Webhook.URL)

	require.ErrorContains(t, c.SetHookBaseURL("127.0.0.1:8123"), "absolute http or https URL")
	require.Error(t, c.WriteFile(filepath.Join(t.TempDir(), "missing", "x.yaml")))
}

func TestSetHookBaseURLLeavesOutMissingHooks(t *testing.T) {
	c := parse(t, replace(t, "    customize:\n      version: v2\n      webhook:\n        url: https://webhooks.egress-proxies.svc:8443/hooks/customize\n        timeout: 10s\n", ""))
	require.NoError(t, c.SetHookBaseURL("http://127.0.0.1:1"))
	require.Nil(t, c.Spec.Hooks.Customize)
	require.Equal(t, "http://127.0.0.1:1/sync", c.Spec.Hooks.Sync.Webhook.URL)
}

func parse(t *testing.T, text string) *metacontroller.Controller {
	t.Helper()
	c, err := metacontroller.ParseController([]byte(text))
	require.NoError(t, err)
	return c
}

// replace returns the manifest with every old text, which must exist, replaced.
func replace(t *testing.T, old, text string) string {
	t.Helper()
	b, err := os.ReadFile(manifest)
	require.NoError(t, err)
	require.Contains(t, string(b), old)
	return strings.ReplaceAll(string(b), old, text)
}

func TestLoadControllerRefuses(t *testing.T) {
	tests := []struct {
		name, old, text, want string
	}{
		{"an unknown field", "generateSelector: true", "generateSelectors: true", `unknown field "generateSelectors"`},
		{"a repeated field", "generateSelector: true", "generateSelector: true\n  generateSelector: true", `already set`},
		{"another kind", "kind: CompositeController", "kind: DecoratorController", `want metacontroller.k8s.io/v1alpha1 CompositeController`},
		{"no name", "name: proxies", "name: ''", "metadata.name: is missing"},
		{"no parent resource", "resource: proxies\n", "resource: ''\n", "spec.parentResource: apiVersion"},
		{"a bad group version", "apiVersion: crawl.example.com/v1alpha1\n    resource: proxies\n", "apiVersion: a/b/c\n    resource: proxies\n", `apiVersion "a/b/c"`},
		{"Recreate", "method: OnDelete", "method: Recreate", `spec.childResources[0].updateStrategy.method: is "Recreate", want OnDelete or InPlace`},
		{"no method", "method: InPlace", "method: ''", `spec.childResources[1].updateStrategy.method: is ""`},
		{"a child twice", "apiVersion: crawl.example.com/v1alpha1\n      resource: proxyprobes", "apiVersion: v1\n      resource: pods", "listed twice"},
		{"no generated selector", "generateSelector: true", "generateSelector: false", "spec.generateSelector: want true"},
		{"no resync", "resyncPeriodSeconds: 300", "resyncPeriodSeconds: 0", "spec.resyncPeriodSeconds: is 0"},
		{"a word as period", "resyncPeriodSeconds: 300", "resyncPeriodSeconds: often", "resyncPeriodSeconds"},
		{"hook v1", "version: v2", "version: v1", `spec.hooks.finalize.version: is "v1", want v2`},
		{"no sync hook", "    sync:\n      version: v2\n      webhook:\n        url: https://webhooks.egress-proxies.svc:8443/hooks/sync\n        timeout: 10s\n", "", "spec.hooks.sync: is missing"},
		{"a relative URL", "https://webhooks.egress-proxies.svc:8443/hooks/sync", "/hooks/sync", `spec.hooks.sync.webhook.url: is "/hooks/sync"`},
		{"no timeout to speak of", "timeout: 10s", "timeout: 0s", "spec.hooks.sync.webhook.timeout: is 0s"},
		{"no YAML", "spec:", "spec", "yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := metacontroller.ParseController([]byte(replace(t, tt.old, tt.text)))
			require.ErrorIs(t, err, metacontroller.ErrBadController)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestLoadControllerSaysWhichFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(path, []byte("kind: Nothing\n"), 0o600))
	_, err := metacontroller.LoadController(path)
	require.ErrorIs(t, err, metacontroller.ErrBadController)
	require.ErrorContains(t, err, path)
	_, err = metacontroller.LoadController(path + ".missing")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestLoadControllerListsEverythingWrong(t *testing.T) {
	_, err := metacontroller.ParseController([]byte("{}"))
	for _, field := range []string{"apiVersion, kind", "metadata.name", "spec.parentResource", "spec.generateSelector", "spec.hooks.sync"} {
		require.ErrorContains(t, err, field)
	}
}

func FuzzParseController(f *testing.F) {
	b, err := os.ReadFile(manifest)
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte("kind: CompositeController\nspec: {hooks: {sync: null}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := metacontroller.ParseController(text)
		if err != nil {
			require.ErrorIs(t, err, metacontroller.ErrBadController)
			return
		}
		require.NotNil(t, c.Spec.Hooks.Sync)
		require.NotEmpty(t, c.Name)
	})
}

func TestDefaultControllerIsTheManifest(t *testing.T) {
	want, err := metacontroller.LoadController(manifest)
	require.NoError(t, err)
	got, err := metacontroller.DefaultController()
	require.NoError(t, err)
	require.Equal(t, want, got)
}
