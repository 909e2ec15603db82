package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

const manifest = "../../metacontroller/compositecontroller.yaml"

var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--help"}, &out), flags.ErrHelp)
	for _, want := range []string{"--controller-file", "PX_WORKERS", "--resync-period", ":8084", "real Metacontroller"} {
		require.Contains(t, out.String(), want)
	}
}

func TestRefused(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("kind: Pod\n"), 0o600))
	file := []string{"--controller-file", manifest}
	tests := map[string]struct {
		args []string
		says []string
	}{
		"nothing":            {nil, []string{"--controller-file is required"}},
		"many bad flags":     {[]string{"--workers", "0", "--resync-period", "1ms", "--ops-addr", "8084", "--log-level", "loud"}, []string{"--controller-file", "--workers 0: want at least 1", "--resync-period 1ms: want 0 or at least 1s", `--ops-addr "8084"`, `--log-level "loud"`}},
		"negative period":    {append(file, "--resync-period", "-5s"), []string{"--resync-period -5s"}},
		"a word as workers":  {append(file, "--workers", "many"), []string{"workers", "--help"}},
		"no such file":       {[]string{"--controller-file", bad + ".missing"}, []string{"--controller-file: ", "no such file"}},
		"a bad file":         {[]string{"--controller-file", bad}, []string{"--controller-file: " + bad, "spec.hooks.sync"}},
		"no such kubeconfig": {append(file, "--kubeconfig", "/nowhere/config"), []string{"--kubeconfig /nowhere/config"}},
		"log level":          {append(file, "--log-level", "loud"), []string{`--log-level "loud"`}},
		"a stray word":       {append(file, "start"), []string{`unexpected argument "start"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tt.args, io.Discard)
			require.Error(t, err)
			for _, want := range tt.says {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// The whole process on a real API server: it becomes ready, syncs, counts, and
// stops when told.
func TestProcess(t *testing.T) {
	cp := shared.Get(t)
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/customize"):
			fmt.Fprint(w, `{"relatedResources":[]}`)
		default:
			fmt.Fprint(w, `{"status":{"phase":"Ready"},"children":[],"finalized":true}`)
		}
	}))
	defer hooks.Close()
	installCRDs(t, cp)
	file := filepath.Join(t.TempDir(), "controller.yaml")
	controller, err := metacontroller.LoadController(manifest)
	require.NoError(t, err)
	require.NoError(t, controller.SetHookBaseURL(hooks.URL+"/hooks"))
	require.NoError(t, controller.WriteFile(file))

	p := programtest.Start(t, run, "--controller-file", file, "--kubeconfig", cp.Kubeconfig(), "--ops-addr", "127.0.0.1:0")
	p.AwaitReady(t)
	const patience, poll = 30 * time.Second, 20 * time.Millisecond

	api, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	proxies := api.Resource(schema.GroupVersionResource{Group: "crawl.example.com", Version: "v1alpha1", Resource: "proxies"}).Namespace("default")
	_, err = proxies.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
		"metadata": map[string]any{"name": "px"},
		"spec":     map[string]any{"mode": "External", "endpoint": map[string]any{"host": "203.0.113.7", "port": int64(3128)}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	syncs := regexp.MustCompile(`proxy_operator_engine_hook_calls_total\{code="200",hook="sync"\} [1-9]`) // a second one may come at once
	require.Eventually(t, func() bool {
		_, metrics := programtest.Get(t, p.Ops(t)+"/metrics")
		return syncs.MatchString(metrics)
	}, patience, poll)
	require.NoError(t, proxies.Delete(t.Context(), "px", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		list, err := proxies.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	}, patience, poll)

	require.NoError(t, p.Stop())
}

func installCRDs(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	files, err := filepath.Glob("../../manifests/crd/crawl.example.com_*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), b))
	}
}
