package manifests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/docpages"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
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
// waits are left out.
func TestOperatingGuide(t *testing.T) {
	c := newCluster(t)
	all := renderAll(t)["release"]
	c.namespaces(t, all)
	c.apply(t, all.ofKind("Deployment", "StatefulSet"))
	c.shell(t, "scripts/discovery-token.sh")
	claim := `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: leases-discovery-0, namespace: egress-proxies}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`
	_, errOut, err := c.run(claim, "apply", "--server-side", "-f", "-")
	require.NoError(t, err, errOut)

	for _, block := range docpages.Mine(t, "..", "manifests") {
		for _, command := range block.Commands() {
			switch {
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

// TestInlineKubectl runs every kubectl that is in the text of a page, up to the
// first pipe, about objects that are there. Logs and forwarded ports need a
// kubelet; there it is whether what logs is there.
func TestInlineKubectl(t *testing.T) {
	c := newCluster(t)
	all := renderAll(t)["release"]
	c.namespaces(t, all)
	c.apply(t, all.ofKind("Deployment", "StatefulSet"))
	c.proxyAndProbe(t, "some")
	ran := map[string]bool{}
	for _, in := range docpages.Inlines(t, "..") {
		command, found := strings.CutPrefix(in.Text, "kubectl ")
		command, _, _ = strings.Cut(command, " | ")
		if !found || ran[command] {
			continue
		}
		ran[command] = true
		words := strings.Fields(command)
		switch verb := words[min(len(words)-1, 2*strings.Count(command, "-n egress"))]; {
		case verb == "port-forward":
			command = strings.Replace(command, "port-forward deploy/prober 8082", "get deploy/prober", 1)
		case verb == "logs":
			command = strings.Replace(command, " logs ", " get ", 1)
			command = strings.Replace(command, "get -l", "get pods -l", 1)
		case strings.HasSuffix(command, "describe px"), command == "scale", command == "rollout undo": // names of commands
			continue
		case strings.Contains(command, "apply --server-side -k metacontroller"): // TestDocumentedSteps there
			continue
		case !strings.Contains(command, "-n ") && !strings.Contains(command, "-A"):
			command = "-n " + fleet + " " + command
		}
		command = strings.NewReplacer("-n NAMESPACE", "-n "+fleet, "NAME", "some").Replace(command)
		c.shell(t, "kubectl "+command)
	}
	assert.Greater(t, len(ran), 20)
}

// proxyAndProbe makes both objects of a proxy, by name.
func (c *cluster) proxyAndProbe(t *testing.T, name string) {
	t.Helper()
	manifests := fmt.Sprintf(`{apiVersion: crawl.example.com/v1alpha1, kind: Proxy, metadata: {name: %[1]s, namespace: %[2]s}, spec: {mode: External, endpoint: {host: 192.0.2.7, port: 3128}}}
---
{apiVersion: crawl.example.com/v1alpha1, kind: ProxyProbe, metadata: {name: %[1]s, namespace: %[2]s}, spec: {instanceID: one, host: 192.0.2.7, port: 3128, healthCheck: {probeURL: "https://probe.example/"}}}
`, name, fleet)
	_, errOut, err := c.run(manifests, "apply", "--server-side", "-f", "-")
	require.NoError(t, err, errOut)
	t.Cleanup(func() {
		_, errOut, err := c.run("", "delete", "proxies,proxyprobes", "-n", fleet, name)
		assert.NoError(t, err, errOut)
	})
}

// shell runs a line as a reader would, from the top of a checkout.
func (c *cluster) shell(t *testing.T, line string) {
	t.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", line)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+filepath.Dir(c.Kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s\n%s", line, out)
}

// The overlay of the page about Google renders, its provider config is one, and
// its Proxy is valid.
func TestGCPPage(t *testing.T) {
	examples := blocks(t, "gcp.md", "yaml")
	require.Len(t, examples, 3)
	overlay, providers, proxy := examples[0], examples[1], examples[2]
	_, err := config.ParseProviders([]byte(providers))
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
