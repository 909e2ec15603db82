package controlplane

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakePrograms fills a new folder with programs of that Kubernetes version.
func fakePrograms(t *testing.T, version string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		writeScript(t, filepath.Join(dir, name), "echo Kubernetes "+version)
	}
	return dir
}

// isolate hides what this machine has, and returns the cache's folder.
func isolate(t *testing.T) string {
	t.Helper()
	t.Setenv(AssetsEnv, "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv(CacheEnv, t.TempDir())
	cache, err := openCache()
	require.NoError(t, err)
	return cache.dir
}

func all() []string { return []string{Etcd, APIServer, kubectlBinary} }

func TestLocate(t *testing.T) {
	for name, tc := range map[string]struct {
		env, path, cached []string // programs there; nil = not set
		envVersion        string
		pathVersion       string
		origin            string
		wantErr           []string
	}{
		"env wins":                     {env: all(), path: all(), cached: all(), origin: AssetsEnv},
		"env lacks some":               {env: []string{Etcd}, path: all(), wantErr: []string{AssetsEnv, "lacks kube-apiserver, kubectl", "unset it"}},
		"env is too old":               {env: all(), envVersion: "v1.29.9", path: all(), wantErr: []string{AssetsEnv, "older than v1.30.0"}},
		"path":                         {path: all(), cached: all(), origin: "PATH"},
		"path, oldest":                 {path: all(), pathVersion: "v1.30.0", origin: "PATH"},
		"path, vendor's build":         {path: all(), pathVersion: "v1.35.1-gke.1234", origin: "PATH"},
		"path lacks one, cache":        {path: []string{Etcd, APIServer}, cached: all(), origin: "built from source"},
		"path is too old, cache":       {path: all(), pathVersion: "v1.29.14", cached: all(), origin: "built from source"},
		"path is not ours, cache":      {path: all(), pathVersion: "what?", cached: all(), origin: "built from source"},
		"cache is incomplete":          {cached: []string{Etcd, kubectlBinary}, wantErr: []string{"not built yet", AssetsEnv, "PATH lacks etcd, kube-apiserver, kubectl", "make assets"}},
		"nothing anywhere":             {wantErr: []string{"not built yet"}},
		"path is too old, and no more": {path: all(), pathVersion: "v1.20.0", wantErr: []string{"not built yet", "older than v1.30.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			cacheDir := isolate(t)
			if tc.env != nil {
				t.Setenv(AssetsEnv, fakePrograms(t, orDefault(tc.envVersion), tc.env...))
			}
			if tc.path != nil {
				t.Setenv("PATH", fakePrograms(t, orDefault(tc.pathVersion), tc.path...))
			}
			if tc.cached != nil {
				require.NoError(t, os.MkdirAll(filepath.Dir(cacheDir), 0o755))
				require.NoError(t, os.Rename(fakePrograms(t, "v1.36.3", tc.cached...), cacheDir))
			}

			assets, err := Locate(t.Context())

			if tc.wantErr != nil {
				require.Error(t, err)
				for _, want := range tc.wantErr {
					assert.ErrorContains(t, err, want)
				}
				assert.Equal(t, tc.env == nil, errors.Is(err, ErrNotBuilt), "only what a build would mend is ErrNotBuilt")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.origin, assets.Origin)
			for _, path := range []string{assets.Etcd, assets.APIServer, assets.Kubectl} {
				assert.FileExists(t, path)
				assert.True(t, filepath.IsAbs(path))
			}
		})
	}
}

func orDefault(version string) string {
	if version == "" {
		return "v1.36.3"
	}
	return version
}

func TestLocateIgnoresWhatCannotRun(t *testing.T) {
	isolate(t)
	dir := fakePrograms(t, "v1.36.3", all()...)
	require.NoError(t, os.Chmod(filepath.Join(dir, Etcd), 0o644))
	require.NoError(t, os.Remove(filepath.Join(dir, kubectlBinary)))
	require.NoError(t, os.Mkdir(filepath.Join(dir, kubectlBinary), 0o755))
	t.Setenv(AssetsEnv, dir)

	_, err := Locate(t.Context())

	assert.ErrorContains(t, err, "lacks etcd, kubectl")
}

func TestLocateReportsAServerThatDoesNotRun(t *testing.T) {
	isolate(t)
	dir := fakePrograms(t, "v1.36.3", all()...)
	writeScript(t, filepath.Join(dir, APIServer), "exit 3")
	t.Setenv(AssetsEnv, dir)

	_, err := Locate(t.Context())

	assert.ErrorContains(t, err, "kube-apiserver --version: exit status 3")
}

func TestLocateWithoutAHome(t *testing.T) {
	isolate(t)
	t.Setenv(CacheEnv, "")
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")

	_, err := Locate(t.Context())

	assert.ErrorContains(t, err, "set HOME or "+CacheEnv)
	_, err = Ensure(t.Context(), io.Discard)
	assert.ErrorContains(t, err, "set HOME or "+CacheEnv)
}

func TestCacheIsInTheUsersCacheFolderByDefault(t *testing.T) {
	t.Setenv(CacheEnv, "")
	t.Setenv("XDG_CACHE_HOME", "/somewhere/cache")
	root, err := cacheRoot()
	require.NoError(t, err)
	assert.Equal(t, "/somewhere/cache/egress-proxies-operator", root)
}

func TestCacheEnvMayBeRelative(t *testing.T) {
	t.Setenv(CacheEnv, "some/folder")
	wd, err := os.Getwd()
	require.NoError(t, err)
	root, err := cacheRoot()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(wd, "some/folder"), root)
}

func TestParseVersion(t *testing.T) {
	for out, want := range map[string]string{
		"Kubernetes v1.36.3\n":         "1.36.3",
		"Kubernetes v1.30.0-rc.1":      "1.30.0",
		"Kubernetes v1.35.1+k3s1 more": "1.35.1",
	} {
		v, err := parseVersion(out)
		require.NoError(t, err, out)
		assert.Equal(t, want, v.String())
	}
	for _, out := range []string{"", "Kubernetes", "etcd Version: 3.6.8", "Kubernetes latest", "Kubernetes v0.0.0-master+$Format"} {
		_, err := parseVersion(out)
		if out == "Kubernetes v0.0.0-master+$Format" {
			require.NoError(t, err, "an unstamped build is a version, and too old")
			continue
		}
		assert.Error(t, err, out)
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, seed := range []string{"Kubernetes v1.36.3\n", "Kubernetes", "", "Kubernetes v99999999999999999999.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, out string) {
		v, err := parseVersion(out)
		if (v == nil) == (err == nil) {
			t.Fatalf("parseVersion(%q) = %v, %v: want either", out, v, err)
		}
	})
}
