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
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/docpages"
)

// suites are the files of tests in client/js/test, and whether they may skip tests, as
// they do without a browser.
var suites = map[string]bool{"attempts": false, "cases": false, "client": false, "crawlee": false, "lease": false, "package": false, "chromium": true}

// TestTheJavaScriptClient runs the tests of the JavaScript package with Node's runner.
func TestTheJavaScriptClient(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(javaScript(t), "client", "js")
	files, err := filepath.Glob("../../client/js/test/*.test.js")
	require.NoError(t, err)
	require.Len(t, files, len(suites)+1, "and the recipes")
	for name, maySkip := range suites {
		t.Run(name, func(t *testing.T) { runSuite(t, dir, name, maySkip) })
	}
}

// TestJavaScriptRecipes runs the JavaScript of docs/clients.md as it stands.
func TestJavaScriptRecipes(t *testing.T) {
	t.Parallel()
	for _, b := range docpages.Mine(t, "../..", "cmd/discovery") {
		assert.Equal(t, "js", b.Language, b.String())
		assert.True(t, strings.HasPrefix(b.Text, "// "), "%s: the first line is its name", b)
	}
	runSuite(t, filepath.Join(javaScript(t), "client", "js"), "recipes", true)
}

// runSuite runs a file of tests. Where it may skip some, t is skipped after the others.
func runSuite(t *testing.T, dir, name string, maySkip bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=tap", "test/"+name+".test.js")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "# fail 0")
	assert.NotContains(t, string(out), "CANARY", "no secret is printed")
	skipped := regexp.MustCompile(`(?m)^ *ok .* # SKIP.*$`).FindAllString(string(out), -1)
	if maySkip && len(skipped) > 0 {
		t.Skip(skipped[0])
	}
	assert.Empty(t, skipped)
}

// requireNode set to "1" makes it an error that the packages cannot be installed.
const requireNode = "PX_REQUIRE_NODE"

// oldestNode is the oldest major version of Node that the libraries in the tests run on.
const oldestNode = 20

// installPackages returns a node_modules folder with the packages that the lock file in dir
// names. It is kept in the user's cache folder. Without Node or a registry t is skipped.
func installPackages(t *testing.T, dir string) string {
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
	version, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, _ := strconv.Atoi(major); err != nil || n < oldestNode {
		missing("Node %s is too old for the libraries, want %d or later", strings.TrimSpace(string(version)), oldestNode)
	}
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(cache, "egress-proxies", "npm-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(packages); err != nil {
		if out, err := npmCI(t.Context(), dir, packages); err != nil {
			missing("npm cannot install the packages: %v: %s", err, out)
		}
	}
	return filepath.Join(packages, "node_modules")
}

// npmCI makes the folder, whole or not at all.
func npmCI(ctx context.Context, dir, folder string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	under, err := os.MkdirTemp(filepath.Dir(folder), "npm-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(under)
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(under, name), text, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = under
	if out, err := cmd.CombinedOutput(); err != nil {
		return string(out), err
	}
	if err := os.Rename(under, folder); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return "", err
	}
	return "", nil
}

// javaScript returns a folder with a copy of the checkout's client/js, with the packages,
// and of what its tests read, so that tests leave the checkout as it is.
func javaScript(t *testing.T) string {
	t.Helper()
	const root = "../.."
	packages := installPackages(t, filepath.Join(root, "client", "js"))
	top := t.TempDir()
	client, example := filepath.Join(top, "client", "js"), filepath.Join(top, "examples", "crawlers", "crawlee")
	copyFolder(t, filepath.Join(root, "client", "js"), client)
	copyFolder(t, filepath.Join(root, "examples", "crawlers", "crawlee"), example)
	for _, err := range []error{
		os.Mkdir(filepath.Join(top, "docs"), 0o755), copyFile(root, top, "docs/clients.md"), copyFile(root, top, "client/cases.json"), os.Symlink(packages, filepath.Join(client, "node_modules")),
		os.Mkdir(filepath.Join(example, "node_modules"), 0o755), os.Symlink(client, filepath.Join(example, "node_modules", "proxylease")),
		os.Symlink(filepath.Join(packages, "@crawlee"), filepath.Join(example, "node_modules", "@crawlee")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return top
}

func copyFile(from, to, name string) error {
	text, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, name), text, 0o644)
}

// copyFolder copies all files but installed packages.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(from, path)
		switch {
		case err != nil || d.Name() == "node_modules" && d.IsDir():
			return errors.Join(err, fs.SkipDir)
		case d.Name() == "node_modules":
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		return copyFile(from, to, name)
	})
	if err != nil {
		t.Fatal(err)
	}
}
