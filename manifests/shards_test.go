package manifests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/docpages"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// The components that split the prober cover the whole fleet, each part once, and
// the Role names the Leases of these parts and no others. The API server takes
// them, with a second replica of each part too.
func TestShards(t *testing.T) {
	c := newCluster(t)
	c.namespaces(t, renderAll(t)["release"])
	for _, n := range []int{2, 4} {
		component := fmt.Sprintf("shards-%d", n)
		for name, components := range map[string][]string{component: {component}, component + ",ha": {component, "ha", "monitoring"}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				all := renderWith(t, components...)
				assertSharded(t, all, n)
				for _, o := range all.ofKind("PodDisruptionBudget") {
					pdb := as[policyv1.PodDisruptionBudget](t, o)
					if pdb.Name == "prober" {
						assertSelects(t, pdb.Spec.Selector, labels.Set(podTemplate(t, all.workloads().named(t, fmt.Sprintf("prober-1-of-%d", n))).Labels))
					}
				}
				_, errOut, err := c.run(controlplanetest.EncodeManifests(t, all), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
				require.NoError(t, err, errOut)
				assert.Empty(t, errOut)
			})
		}
	}
}

func assertSharded(t *testing.T, all objects, n int) {
	t.Helper()
	var leases []string
	probers := 0
	for _, o := range all.ofKind("Deployment") {
		deployment := as[appsv1.Deployment](t, o)
		if deployment.Labels["app.kubernetes.io/name"] != "prober" {
			continue
		}
		shard := v1alpha1.Shard{Index: probers, Count: n}
		probers++
		assert.Equal(t, "prober-"+shard.LeaseLabel(), deployment.Name, "the whole prober is gone")
		assert.Equal(t, fmt.Sprintf("%d/%d", shard.Index, shard.Count), flagsOf(t, deployment.Spec.Template.Spec.Containers[0])["shard"])
		assert.Equal(t, shard.LeaseLabel(), deployment.Spec.Selector.MatchLabels[v1alpha1.LabelProberShard], "no two of them select the same Pods")
		assertSelects(t, deployment.Spec.Selector, labels.Set(deployment.Spec.Template.Labels))
		assert.Equal(t, "egress-proxies", deployment.Labels["app.kubernetes.io/part-of"])
		for _, constraint := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
			assert.Equal(t, []string{v1alpha1.LabelProberShard}, constraint.MatchLabelKeys)
		}
		leases = append(leases, shard.LeaseName())
	}
	assert.Equal(t, n, probers)
	role := as[rbacv1.Role](t, all.find(t, "Role", "prober"))
	assert.Equal(t, leases, role.Rules[1].ResourceNames)
}

// The components are what the script writes, which makes others of other sizes.
func TestShardsAreWritten(t *testing.T) {
	script := func(args ...string) string {
		out, err := exec.Command("../scripts/prober-shards.sh", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	for _, n := range []string{"2", "4"} {
		dir := filepath.Join("components", "shards-"+n)
		before := contents(t, dir)
		script(n)
		assert.Equal(t, before, contents(t, dir), "run scripts/prober-shards.sh %s", n)
	}
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	// In a folder that tests of other packages, which walk the tree, pass over.
	other, err := os.MkdirTemp(filepath.Join(here, "testdata"), "shards-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	script("3", other)
	assertSharded(t, renderWith(t, "../testdata/"+filepath.Base(other)), 3)

	// A folder is the caller's, wherever the script is.
	elsewhere := t.TempDir()
	path, err := filepath.Abs("../scripts/prober-shards.sh")
	require.NoError(t, err)
	cmd := exec.Command(path, "3", "mine")
	cmd.Dir = elsewhere
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.FileExists(t, filepath.Join(elsewhere, "mine", "kustomization.yaml"))

	for _, wrong := range []string{"", "0", "two", "1000"} {
		out, err := exec.Command("../scripts/prober-shards.sh", wrong).CombinedOutput()
		require.Error(t, err)
		assert.Contains(t, string(out), "want the number of shards")
	}
}

// TestResharding runs the documented steps from one prober shard to two. The old Lease is
// deleted.
func TestResharding(t *testing.T) {
	c := newCluster(t)
	all := renderAll(t)["release"]
	c.namespaces(t, all)
	c.apply(t, all)
	c.renewProberLease(t)
	here, err := filepath.Abs("..")
	require.NoError(t, err)
	deploy := filepath.Join(t.TempDir(), "deploy")
	require.NoError(t, os.Mkdir(deploy, 0o755))
	overlay := "resources:\n- ../manifests/base\n- ../manifests/fleet\n" + blocks(t, "capacity.md", "yaml")[0]
	overlay = strings.ReplaceAll(overlay, "../manifests", relative(t, deploy, "."))
	require.NoError(t, os.WriteFile(filepath.Join(deploy, "kustomization.yaml"), []byte(overlay), 0o644))
	for _, block := range docpages.Mine(t, here, "manifests") {
		for _, command := range block.Commands() {
			c.shell(t, strings.Replace(command, "-k deploy", "-k "+deploy, 1))
		}
	}
	out, errOut, err := c.run("", "-n", system, "get", "deployments,leases", "-o", "name", "-l", "app.kubernetes.io/name=prober")
	require.NoError(t, err, errOut)
	assert.Equal(t, "deployment.apps/prober-0-of-2\ndeployment.apps/prober-1-of-2\n", out)
	out, errOut, err = c.run("", "-n", system, "get", "leases", "-o", "name")
	require.NoError(t, err, errOut)
	assert.NotContains(t, out, "prober")
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = string(content)
		return err
	}))
	return files
}
