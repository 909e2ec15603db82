package cloud

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider/providertest"
)

// A second cloud is one line in the registry: here it is, beside the first one,
// and its instances go through their life over the socket.
func TestASecondCloudIsOneLineInTheRegistry(t *testing.T) {
	registry := provider.Registry{
		gcp.Type:          gcp.Constructor(gcp.Options{Endpoint: "http://127.0.0.1:1"}),
		providertest.Type: providertest.Constructor,
	}
	path := filepath.Join(t.TempDir(), "providers.yaml")
	require.NoError(t, os.WriteFile(path, []byte("providers: [{name: second, type: memory, memory: {}}]"), 0o600))
	named, err := registry.Load(t.Context(), path, provider.Deps{Installation: "inst"})
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

// No part of the adapter but the registry's line knows a cloud.
func TestOnlyTheRegistryKnowsACloud(t *testing.T) {
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
