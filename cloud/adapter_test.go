package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is the timeout of waits on a busy machine, tick their poll interval.
const patience, tick = time.Minute, 20 * time.Millisecond

const canary = "CANARY-0123456789abcdef"

// rig is an adapter without an API server, in real time, and its client.
type rig struct {
	*adapter.Client
	t        testing.TB
	gce      *gcestandin.Server
	registry *prometheus.Registry
	log      *programtest.Output
}

func start(t testing.TB, gce *gcestandin.Server) *rig {
	t.Helper()
	srv := httptest.NewServer(gce.Handler())
	c, err := gcp.New(context.Background(), gcp.Config{Project: "demo"}, "inst", gcp.Options{Endpoint: srv.URL})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		srv.CloseClientConnections()
		srv.Close()
	})
	r := startOn(t, []provider.Named{{Name: "gcp-eu", Type: gcp.Type, Cloud: c}})
	r.gce = gce
	return r
}

// startOn starts an adapter with these providers.
func startOn(t testing.TB, named []provider.Named) *rig {
	t.Helper()
	r := &rig{t: t, registry: prometheus.NewRegistry(), log: &programtest.Output{}}
	socket := filepath.Join(t.TempDir(), "s")
	a, err := New(Config{
		Socket: socket, Installation: "inst", Providers: named, ListInterval: time.Second, QuotaRetry: time.Minute,
		MutationsPerSecond: 1000, MutationsBurst: 1000, Registry: r.registry,
		Log: slog.New(slog.NewJSONHandler(r.log, nil)),
	})
	require.NoError(t, err)
	require.ErrorContains(t, a.Ready(), "does not listen")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	r.Client = adapter.NewClient(socket, 20*time.Second)
	t.Cleanup(func() {
		r.Close()
		cancel()
		assert.NoError(t, <-ended)
	})
	require.Eventually(t, func() bool { return a.Ready() == nil }, 20*time.Second, time.Millisecond)
	return r
}

func request(n int) (string, adapter.PutRequest) {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	return v1alpha1.InstanceName(types.UID(uid)), adapter.PutRequest{
		UID: uid, Namespace: "crawl", Proxy: fmt.Sprintf("p%d", n), SpecHash: "v1-aa", Port: 3128, UserData: "password: " + canary,
		Placement: v1alpha1.Placement{Zone: "europe-west1-b", MachineType: "e2-micro", Image: "squid-1"},
	}
}

// reach polls until the response has that state.
func (r *rig) reach(state adapter.State, ask func() (adapter.Instance, error)) adapter.Instance {
	r.t.Helper()
	var got adapter.Instance
	require.Eventually(r.t, func() bool {
		var err error
		got, err = ask()
		return err == nil && got.State == state
	}, patience, tick, "state %s", state)
	return got
}

func TestInstanceFromPutToDeleteOverTheSocket(t *testing.T) {
	r := start(t, gcestandin.New(gcestandin.Options{Timing: gcestandin.Timing{Provisioning: 200 * time.Millisecond, Delete: 200 * time.Millisecond}}))
	name, req := request(1)
	got := r.reach(adapter.StateRunning, func() (adapter.Instance, error) { return r.Put(t.Context(), "gcp-eu", name, req) })
	assert.Equal(t, r.gce.VMs()[0].ID, got.InstanceID)
	list, err := r.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, list.Instances, 1)
	r.reach(adapter.StateAbsent, func() (adapter.Instance, error) {
		return r.Delete(t.Context(), "gcp-eu", name, req.UID, got.ProviderID)
	})
	assert.Empty(t, r.gce.VMs())
	_, err = r.Put(t.Context(), "gcp-eu", name, req)
	require.ErrorIs(t, err, adapter.ErrDeleted)
	_, err = r.Put(t.Context(), "azure", name, req)
	require.ErrorIs(t, err, adapter.ErrUnknownProvider)
	assert.Contains(t, r.log.String(), "acts without a lease")
}

// Row C15: without permission every instance is unknown, and the error names the
// missing permission.
func TestC15NotReadyUntilListed(t *testing.T) {
	gce := gcestandin.New(gcestandin.Options{})
	gce.AddFault(gcestandin.Fault{Op: "list", Status: 403, Reason: "forbidden", Message: "Required 'compute.instances.list' permission"})
	r := start(t, gce)
	name, req := request(1)
	require.Eventually(t, func() bool {
		_, err := r.Put(t.Context(), "gcp-eu", name, req)
		require.ErrorIs(t, err, adapter.ErrNotReady)
		var status *adapter.StatusError
		require.ErrorAs(t, err, &status)
		assert.Equal(t, 5*time.Second, status.RetryAfter)
		return bytes.Contains([]byte(err.Error()), []byte("compute.instances.list"))
	}, 20*time.Second, 10*time.Millisecond, "people can see why")
	gce.ClearFaults()
	r.reach(adapter.StateRunning, func() (adapter.Instance, error) { return r.Put(t.Context(), "gcp-eu", name, req) })
}

// Row E4: user data may contain passwords, and Compute echoes it in its errors.
func TestE4UserDataIsNotLeaked(t *testing.T) {
	gce := gcestandin.New(gcestandin.Options{})
	for _, f := range []gcestandin.Fault{
		{Op: "insert", Count: 1, Status: 500, Message: "Invalid value: 'password: " + canary + "'"},
		{Op: "insert", Count: 1, OperationError: &gcestandin.OperationError{
			Code: "INVALID_FIELD_VALUE", Message: "Invalid value for field 'resource.metadata.items[1].value': '" + canary + "'",
		}},
	} {
		gce.AddFault(f)
	}
	r := start(t, gce)
	name, req := request(1)
	var got adapter.Instance
	require.Eventually(t, func() bool {
		got, _ = r.Put(t.Context(), "gcp-eu", name, req)
		return got.Failure != nil && got.Failure.Class == adapter.FailurePermanent
	}, 60*time.Second, 20*time.Millisecond)
	list, err := r.List(t.Context())
	require.NoError(t, err)
	families, err := r.registry.Gather()
	require.NoError(t, err)
	for what, v := range map[string]any{"answer": got, "list": list, "metrics": families} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		assert.NotContains(t, string(text), canary, what)
	}
	assert.NotContains(t, r.log.String(), canary)
	assert.Contains(t, r.log.String(), "[redacted]", "it was there to be seen")
}

func TestMetricsOfAdapter(t *testing.T) {
	r := start(t, gcestandin.New(gcestandin.Options{}))
	name, req := request(1)
	r.reach(adapter.StateRunning, func() (adapter.Instance, error) { return r.Put(t.Context(), "gcp-eu", name, req) })
	var page string
	require.Eventually(t, func() bool { // a list may contain the VM before the response to its insert
		rec := httptest.NewRecorder()
		promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		page = rec.Body.String()
		return strings.Contains(page, "cloud_instances_made_total{")
	}, patience, tick)
	for _, want := range []string{
		`proxy_operator_provider_requests_total{op="insert",provider="gcp-eu",result="ok"} 1`,
		`proxy_operator_provider_request_duration_seconds_count{op="insert",provider="gcp-eu"} 1`,
		`proxy_operator_cloud_instances_made_total{provider="gcp-eu",reason="new"} 1`,
		`proxy_operator_cloud_instances{failure="",provider="gcp-eu",state="Running"} 1`,
		`proxy_operator_cloud_leader 1`, `proxy_operator_cloud_last_list_timestamp_seconds{provider="gcp-eu"}`,
		`proxy_operator_cloud_unreachable_zones{provider="gcp-eu"} 0`,
		`proxy_operator_cloud_api_requests_total{code="200",method="PUT"}`, `proxy_operator_cloud_api_request_duration_seconds_count{method="PUT"}`,
	} {
		assert.Contains(t, page, want)
	}
}

func TestRunWithoutSocketFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "s")
	a, err := New(Config{Socket: path, MutationsPerSecond: 1, MutationsBurst: 1, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	assert.ErrorContains(t, a.Run(t.Context()), "--socket: socket "+path)
}

// A second cloud is one line in the registry. Here it is, beside the first one, with
// the life of an instance over the socket.
func TestSecondCloudIsOneLineInTheRegistry(t *testing.T) {
	registry := provider.Registry{
		gcp.Type:   gcp.Constructor(gcp.Options{Endpoint: "http://127.0.0.1:1"}),
		memoryType: newMemoryFrom,
	}
	path := filepath.Join(t.TempDir(), "providers.yaml")
	require.NoError(t, os.WriteFile(path, []byte("providers: [{name: second, type: memory, memory: {}}]"), 0o600))
	named, err := registry.Load(t.Context(), path, "inst")
	require.NoError(t, err)
	r := startOn(t, named)

	name, req := request(1)
	put := func() (adapter.Instance, error) { return r.Put(t.Context(), "second", name, req) }
	first := r.reach(adapter.StateRunning, put)
	assert.Equal(t, "europe-west1-b/"+name, first.ProviderID)
	req.Replace = first.InstanceID
	require.Eventually(t, func() bool {
		got, err := put()
		return err == nil && got.State == adapter.StateRunning && got.InstanceID != first.InstanceID
	}, patience, tick, "replaced")
	r.reach(adapter.StateAbsent, func() (adapter.Instance, error) {
		return r.Delete(t.Context(), "second", name, req.UID, first.ProviderID)
	})
	families, err := r.registry.Gather()
	require.NoError(t, err)
	ops := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "proxy_operator_provider_requests_total" && l.GetName() == "op" {
					ops[l.GetValue()] = true
				}
			}
		}
	}
	assert.Equal(t, map[string]bool{"insert": true, "get": true, "delete": true, "list": true}, ops, "its calls are counted like any other's")
}

// Only the registry imports a cloud.
func TestOnlyTheRegistryImportsACloud(t *testing.T) {
	const first = "egress-proxies-operator/cloud/gcp\""
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		assert.NotContains(t, string(text), first, path)
		return err
	}))
	main, err := os.ReadFile("../cmd/cloud/main.go")
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(main), "gcp.Type"), "one line")
}
