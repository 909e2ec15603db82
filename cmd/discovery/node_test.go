package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// crawleeExample is what its users start from.
const crawleeExample = "../../examples/crawlers/crawlee"

// requireNode set to "1" makes it an error that the example cannot be run.
const requireNode = "PX_REQUIRE_NODE"

// installCrawlee returns a folder with the example and the packages that its
// lock file names, which are kept in the user's cache folder.
func installCrawlee(t *testing.T) string {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv(requireNode) == "1" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			missing("%s is not in PATH: apt-get install nodejs npm", program)
		}
	}
	lock, err := os.ReadFile(crawleeExample + "/package-lock.json")
	require.NoError(t, err)
	sum := sha256.Sum256(lock)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	packages := filepath.Join(cache, "egress-proxies", "crawlee-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(packages); err != nil {
		if out, err := npmInstall(t, packages); err != nil {
			missing("npm cannot install the example's packages: %v: %s", err, out)
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(crawleeExample)))
	require.NoError(t, os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")))
	return dir
}

// npmInstall makes the folder, whole or not at all.
func npmInstall(t *testing.T, folder string) (string, error) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(folder), 0o755))
	under, err := os.MkdirTemp(filepath.Dir(folder), "npm-")
	require.NoError(t, err)
	defer os.RemoveAll(under)
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(crawleeExample, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(under, name), text, 0o644))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = under
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), err
	}
	if err := os.Rename(under, folder); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return "", err
	}
	return "", nil
}
