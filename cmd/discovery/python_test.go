package main

import (
	"archive/zip"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/docpages"
)

// pythonPackage is the Python client.
const pythonPackage = "../../client/python"

// pythonWith returns a Python that has the modules. Debian installs them for its own.
func pythonWith(t *testing.T, modules ...string) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import sys, "+strings.Join(append(modules, "json"), ", ")).Run() == nil {
			return name
		}
	}
	t.Skipf("no python3 has %s: apt-get install python3-%s", strings.Join(modules, ", "), strings.Join(modules, " python3-"))
	return ""
}

// runPython runs a command in the folder of the package for at most five minutes.
func runPython(t *testing.T, dir string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "no_proxy=*", "NO_PROXY=*")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// TestThePythonClient runs the tests of the Python client that need discovery.
func TestThePythonClient(t *testing.T) {
	t.Parallel()
	python := pythonWith(t)
	w := newWorld(t)
	out, err := w.run(pythonPackage, python, "-m", "unittest", "-v", "tests.test_discovery")
	require.NoError(t, err, out)
	assert.Contains(t, out, "test_a_lease_is_a_scope")
	assert.NotContains(t, out, "skipped", "all ran")
	w.givenBack()
}

// TestScrapy crawls with a real Scrapy, where there is one.
func TestScrapy(t *testing.T) {
	t.Parallel()
	python := pythonWith(t, "scrapy")
	w := newWorld(t)
	out, err := w.run(pythonPackage, python, "-m", "unittest", "-v", "tests.test_discovery_scrapy")
	require.NoError(t, err, out)
	assert.NotContains(t, out, "skipped", "it ran")
	w.givenBack()
}

// TestThePythonPackage runs the other tests of the Python client, with the errors of
// real libraries, where they are installed.
func TestThePythonPackage(t *testing.T) {
	t.Parallel()
	python := pythonWith(t)
	for _, module := range []string{"test_client", "test_aio", "test_cut", "test_cases", "test_scrapy"} {
		t.Run(module, func(t *testing.T) {
			out := runPython(t, pythonPackage, python, "-m", "unittest", "tests."+module)
			assert.NotContains(t, out, "CANARY", "no secret is printed")
			for _, skipped := range regexp.MustCompile(`skipped=\d+`).FindAllString(out, -1) {
				t.Logf("%s: libraries are missing, see scripts/deps.sh", skipped)
			}
		})
	}
}

// TestThePythonWheel builds the package without a network, uses it, and checks its
// types where mypy is installed.
func TestThePythonWheel(t *testing.T) {
	t.Parallel()
	python := pythonWith(t, "setuptools", "wheel", "pip") // setuptools must be imported before pip
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	require.NoError(t, os.CopyFS(source, os.DirFS(pythonPackage)))
	runPython(t, source, python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", dir, ".")
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	require.NoError(t, err)
	require.Len(t, wheels, 1)
	wheel, err := zip.OpenReader(wheels[0])
	require.NoError(t, err)
	defer wheel.Close()
	var names []string
	for _, f := range wheel.File {
		names = append(names, f.Name)
	}
	for _, want := range []string{"proxylease/py.typed", "proxylease/aio.py", "proxylease/scrapy/middleware.py"} {
		assert.Contains(t, names, want)
	}
	assert.False(t, slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "test") }), "%v", names)
	runPython(t, dir, python, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import proxylease, proxylease.aio", wheels[0])
	if exec.CommandContext(t.Context(), "mypy", "--version").Run() != nil {
		t.Skip("mypy is not in PATH: apt-get install mypy")
	}
	runPython(t, source, "mypy", "--cache-dir="+dir, "--ignore-missing-imports", "--allow-untyped-calls", "proxylease")
}

// TestPythonRecipes runs the recipes of the documents, each with its library. Their
// first line names the module.
func TestPythonRecipes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, b := range docpages.Mine(t, "../..", "cmd/discovery") {
		module := strings.TrimPrefix(strings.SplitN(b.Text, "\n", 2)[0], "# ")
		t.Run(module, func(t *testing.T) {
			python := pythonWith(t, module)
			script := filepath.Join(t.TempDir(), "recipe.py")
			require.NoError(t, os.WriteFile(script, []byte(strings.ReplaceAll(b.Text, "shop.example", siteHost)), 0o600))
			out, err := w.run(pythonPackage, python, "-c", "import runpy, sys; sys.path.insert(0, '.'); runpy.run_path(sys.argv[1])", script)
			require.NoError(t, err, out)
			assert.Contains(t, out, "reached")
			w.givenBack()
		})
	}
}
