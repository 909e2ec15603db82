package install_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// blocks returns the code blocks of a language in the install page.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/install-metacontroller.md")
	require.NoError(t, err)
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		found = append(found, m[1])
	}
	require.NotEmpty(t, found, language)
	return found
}

// Every overlay that the page shows renders.
func TestDocumentedOverlays(t *testing.T) {
	for _, block := range blocks(t, "yaml") {
		require.Contains(t, block, "- ../metacontroller\n")
		root := checkout(t, strings.Contains(block, "cert-manager"))
		dir := filepath.Join(root, "deploy")
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(block), 0o644))
		objects := parseObjects(t, kustomize(t, dir))
		assert.True(t, has(objects, metacontroller.ControllerKind, metacontroller.ControllerName))
	}
}

// Every file and folder that a documented command names is there.
func TestDocumentedPaths(t *testing.T) {
	named := regexp.MustCompile(`(?:-k|-f|go run) (\S+)|(?m)^(scripts/\S+)`)
	for _, block := range blocks(t, "sh") {
		for _, m := range named.FindAllStringSubmatch(block, -1) {
			path := m[1] + m[2]
			if path == "deploy" { // the reader's own
				continue
			}
			_, err := os.Stat(filepath.Join("../..", path))
			assert.NoError(t, err, path)
		}
	}
}

// The five steps, in order, against the real API server; the kinds are there
// already, since theirs would need the network.
func TestDocumentedSteps(t *testing.T) {
	c := newCluster(t)
	root := checkout(t, false)
	steps := blocks(t, "sh")[0]
	require.Contains(t, steps, "kubectl apply --server-side -k metacontroller\n")
	c.mustKubectl(t, "", "apply", "--server-side", "-k", filepath.Join(root, "metacontroller"))
	c.mustKubectl(t, "", "apply", "--server-side", "-k", filepath.Join(root, "metacontroller"))
	assert.True(t, c.hasController(t))
	require.Contains(t, steps, "deployment/metacontroller")
	c.mustKubectl(t, "", "-n", accountNamespace, "get", "deployment/metacontroller")
}
