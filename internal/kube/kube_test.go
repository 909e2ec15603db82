package kube

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func kubeconfig(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

const valid = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: secret}}]
current-context: c
`

func TestConfigOfAKubeconfig(t *testing.T) {
	cfg, err := Config(kubeconfig(t, valid), "prober")
	require.NoError(t, err)
	assert.Equal(t, "https://127.0.0.1:6443", cfg.Host)
	assert.Equal(t, "secret", cfg.BearerToken)
	assert.Equal(t, "prober", cfg.UserAgent)
}

func TestConfigSaysWhatIsMissing(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // as outside of a cluster
	for name, tt := range map[string]struct {
		path string
		want []string
	}{
		"nothing":       {"", []string{"no --kubeconfig given", "no service account"}},
		"no such file":  {"/no/such/file", []string{"--kubeconfig /no/such/file", "no such file"}},
		"not YAML":      {kubeconfig(t, "{"), []string{"--kubeconfig /", "kubeconfig"}},
		"empty":         {kubeconfig(t, ""), []string{"--kubeconfig /", "no configuration"}},
		"lost its name": {kubeconfig(t, "kind: Config\ncurrent-context: other\n"), []string{"--kubeconfig /", "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Config(tt.path, "prober")
			require.Error(t, err)
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestNamespace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "namespace")
	assert.Equal(t, "default", namespaceIn(path), "outside of a cluster")
	require.NoError(t, os.WriteFile(path, []byte("egress-proxies\n"), 0o600))
	assert.Equal(t, "egress-proxies", namespaceIn(path))
}
