package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFindSourcesOfThisCheckout(t *testing.T) {
	kubernetes, err := findSource("kubernetes", kubernetesModule)
	require.NoError(t, err)
	etcd, err := findSource("etcd", etcdModule)
	require.NoError(t, err)
	assert.Regexp(t, `^v1\.\d+\.\d+$`, kubernetes.version)
	assert.Regexp(t, `^v3\.\d+\.\d+$`, etcd.version)
	assert.FileExists(t, filepath.Join(etcd.dir, "go.mod"))
}

func TestSourcesOutsideACheckout(t *testing.T) {
	dir := t.TempDir()
	_, err := checkout(dir, "/")
	assert.ErrorContains(t, err, "run this inside a checkout")
	assert.ErrorContains(t, err, AssetsEnv)
	assert.ErrorContains(t, err, dir)
}

func TestCheckoutAbove(t *testing.T) {
	root := t.TempDir()
	write := func(path, content string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	write("ours/go.mod", "// a comment\n"+ownModule+"\ngo 1.26\n")
	write("ours/nested/go.mod", strings.TrimSuffix(ownModule, "\n")+"/nested\n")
	write("other/go.mod", "module example.com/other\n")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "ours/nested/deep"), 0o755))

	for dir, want := range map[string]string{
		"ours":             "ours",
		"ours/nested/deep": "ours",
		"other":            "",
		"ours/not/there":   "ours",
	} {
		got, ok := checkoutAbove(filepath.Join(root, dir))
		assert.Equal(t, want != "", ok, dir)
		if ok {
			assert.Equal(t, filepath.Join(root, want), got, dir)
		}
	}
}

func TestRequiredVersion(t *testing.T) {
	for name, tc := range map[string]struct{ mod, want string }{
		"in a block":         {"require (\n\tk8s.io/klog v1.2.3\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n", "v1.36.3"},
		"alone":              {"require k8s.io/kubernetes v1.36.4\n", "v1.36.4"},
		"pseudo version":     {"require k8s.io/kubernetes v0.0.0-20260101000000-0123456789ab\n", "v0.0.0-20260101000000-0123456789ab"},
		"only a tool":        {"tool (\n\tk8s.io/kubernetes/cmd/kubectl\n)\n", ""},
		"only a longer name": {"require k8s.io/kubernetes/v2 v2.0.0\n", ""},
		"only replaced":      {"replace k8s.io/kubernetes => ../kubernetes\n", ""},
		"not there":          {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := requiredVersion([]byte(tc.mod), kubernetesModule)
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.want != "", ok)
		})
	}
}

func TestReadSourceErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := readSource(dir, etcdModule)
	require.ErrorContains(t, err, "go.mod")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n"), 0o644))
	_, err = readSource(dir, etcdModule)
	require.ErrorContains(t, err, "go.sum")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), nil, 0o644))
	_, err = readSource(dir, etcdModule)
	require.ErrorContains(t, err, "requires no version of "+etcdModule)
}

func TestKeyChangesWithEachInput(t *testing.T) {
	dir := t.TempDir()
	read := func(mod, sum string) source {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), []byte(sum), 0o644))
		s, err := readSource(dir, etcdModule)
		require.NoError(t, err)
		return s
	}
	mod := "require " + etcdModule + " v3.6.8\n"
	base, otherMod, otherSum := read(mod, "sum\n"), read(mod+"// edited\n", "sum\n"), read(mod, "other sum\n")

	keys := map[string]bool{
		key(base, base): true, key(otherMod, base): true, key(base, otherMod): true, key(otherSum, base): true, key(base, otherSum): true,
	}
	assert.Len(t, keys, 5)
	assert.Equal(t, key(base, base), key(read(mod, "sum\n"), base), "the same files give the same folder")
	assert.Contains(t, key(base, base), "etcd-v3.6.8")
}
