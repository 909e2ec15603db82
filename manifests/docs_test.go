package manifests_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
)

// blocks returns the code blocks of a language in a page of docs.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../docs", page))
	require.NoError(t, err)
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(content), -1) {
		found = append(found, m[1])
	}
	require.NotEmpty(t, found, "%s %s", page, language)
	return found
}

// Every command of the operating guide is run against a real API server. It has
// no controllers, so nothing ever rolls out or finishes being deleted: those
// waits are left out, and so is the uninstaller, which has tests of its own.
func TestOperatingGuide(t *testing.T) {
	c := newCluster(t)
	all := renderAll(t)["release"]
	c.namespaces(t, all)
	c.apply(t, all.ofKind("Deployment", "StatefulSet"))
	c.shell(t, "scripts/discovery-token.sh")
	claim := `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: leases-discovery-0, namespace: egress-proxies}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`
	_, errOut, err := c.run(claim, "apply", "--server-side", "-f", "-")
	require.NoError(t, err, errOut)

	for _, block := range blocks(t, "operate.md", "sh") {
		for line := range strings.Lines(block) {
			command, _, _ := strings.Cut(strings.TrimSpace(line), "  #")
			switch {
			case strings.HasPrefix(command, "scripts/uninstall.sh"):
				continue
			case strings.Contains(command, " rollout status "):
				command = strings.Replace(command, " rollout status ", " get ", 1)
			case strings.Contains(command, " delete -k "): // the namespaces would be terminating for ever
				command += " --dry-run=server"
			case strings.Contains(command, " delete "):
				command += " --wait=false"
			}
			c.shell(t, command)
		}
	}
}

// What the paragraphs about alerts suggest to look at can be looked at: the
// commands in their text are run, up to the first pipe. Logs need a kubelet, so
// there it is whether what logs is there.
func TestAlertCommands(t *testing.T) {
	c := newCluster(t)
	all := renderAll(t)["release"]
	c.namespaces(t, all)
	c.apply(t, all.ofKind("Deployment", "StatefulSet"))
	page, err := os.ReadFile("../docs/alerts.md")
	require.NoError(t, err)
	ran := 0
	for _, m := range regexp.MustCompile("`(kubectl [^`]+)`").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], "NAMESPACE") || strings.Contains(m[1], " apply ") {
			continue
		}
		command, _, _ := strings.Cut(m[1], " | ")
		c.shell(t, strings.Replace(command, " logs ", " get ", 1))
		ran++
	}
	assert.Greater(t, ran, 5)
}

// shell runs a line as a reader would, from the top of a checkout.
func (c *cluster) shell(t *testing.T, line string) {
	t.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", line)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+filepath.Dir(c.kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s\n%s", line, out)
}

// The overlay of the page about Google renders, its provider config is one, and
// its Proxy is valid. What needs a cloud says so.
func TestGCPPage(t *testing.T) {
	for _, block := range blocks(t, "gcp.md", "sh") {
		assert.True(t, strings.HasPrefix(block, "# needs a cloud\n"), block)
	}
	examples := blocks(t, "gcp.md", "yaml")
	require.Len(t, examples, 3)
	overlay, providers, proxy := examples[0], examples[1], examples[2]
	_, err := webhooks.ParseProviders([]byte(providers))
	require.NoError(t, err)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "providers.yaml"), []byte(providers), 0o644))
	overlay = strings.ReplaceAll(overlay, "../manifests", relative(t, dir, "."))
	all := renderOverlay(t, dir, overlay)
	account := as[corev1.ServiceAccount](t, all.find(t, "ServiceAccount", "webhooks"))
	assert.Contains(t, account.Annotations, "iam.gke.io/gcp-service-account")
	assert.Equal(t, "registry.example.com/egress-proxies/cloud:v0.1.0", all.container(t, "webhooks", "cloud").Image)
	maps := all.ofKind("ConfigMap")
	require.Len(t, maps, 1)
	assert.Equal(t, providers, as[corev1.ConfigMap](t, maps[0]).Data["providers.yaml"])

	c := newCluster(t)
	c.namespaces(t, renderAll(t)["release"])
	_, errOut, err := c.run(proxy, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	require.NoError(t, err, errOut)
}
