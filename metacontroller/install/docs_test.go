package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/docpages"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
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
		objects := controlplanetest.Kustomize(t, dir)
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

// shell runs commands as a reader does, from the top of a checkout.
func (c *cluster) shell(t *testing.T, root string, block docpages.Block) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block.Text)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+c.shim(t)+":"+os.Getenv("PATH"), "GOFLAGS=-trimpath")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s\n%s", block, block.Text, out)
}

// shim is a folder with a kubectl that leaves out what this API server has no use
// for: Metacontroller's kinds, which need the network and are installed already,
// and waiting for Pods, which do not run here.
func (c *cluster) shim(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	// In place of "rollout status KIND/NAME" comes "get KIND/NAME".
	script := `#!/usr/bin/env bash
case "$*" in
*metacontroller/install/crds*) exit ;;
"create namespace egress-proxies") exec KUBECTL get namespace egress-proxies ;;
*" rollout status "*) exec KUBECTL "${@:1:$#-3}" get "${@: -1}" ;;
esac
exec KUBECTL "$@"
`
	script = strings.ReplaceAll(script, "KUBECTL", c.Kubectl)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755))
	return dir
}

// fullCheckout copies the repository as users check it out.
func fullCheckout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	copied := exec.Command("bash", "-euo", "pipefail", "-c", `tar -C ../.. --exclude=./.git --exclude=./bin --exclude=./dist --exclude=./metacontroller/install/tls -cf - . | tar -C "$1" -xf -`, "copy", root)
	out, err := copied.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return root
}

// The five steps of the page, as they stand there.
func TestDocumentedSteps(t *testing.T) {
	c := newCluster(t)
	root := fullCheckout(t)
	for _, block := range docpages.Mine(t, "../..", "metacontroller/install") {
		c.shell(t, root, block)
	}
	assert.True(t, c.hasController(t))
	c.mustKubectl(t, "", "-n", accountNamespace, "get", "deployment/metacontroller")
}

// The commands of the README install everything, and create the token once.
func TestInstallByTheREADME(t *testing.T) {
	c := newCluster(t)
	root := fullCheckout(t)
	t.Cleanup(func() {
		c.mustKubectl(t, "", "delete", "deployments,statefulsets,networkpolicies", "-n", fleet, "--all")
		c.mustKubectl(t, "", "delete", "secret", "-n", fleet, "discovery-token")
	})
	for range 2 { // it can be done again
		for _, block := range docpages.Mine(t, "../..", "metacontroller/install") {
			c.shell(t, root, block)
		}
	}
	assert.True(t, c.hasController(t))
	c.mustKubectl(t, "", "-n", fleet, "get", "deployment/webhooks", "deployment/prober", "statefulset/discovery", "secret/discovery-token", "secret/webhooks-tls")
	c.mustKubectl(t, "", "-n", "crawl", "get", "networkpolicies")
}

// The documented uninstall, of an installation without Proxies.
func TestDocumentedUninstall(t *testing.T) {
	c := newCluster(t)
	c.install(t, variants()["whole"])
	for _, block := range docpages.Mine(t, "../..", "metacontroller/install") {
		c.shell(t, "../..", block)
	}
	assert.False(t, c.hasController(t))
}
