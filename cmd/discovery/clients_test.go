package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	crawling "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

// trusting is what connections to the site need.
func trusting(t *testing.T, ca []byte) *http.Transport {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
}

// TestTheGoClient crawls with the real client through real proxies.
func TestTheGoClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ca, err := os.ReadFile(w.caFile)
	require.NoError(t, err)
	c, err := crawling.New(crawling.Config{URL: w.discovery.api, Token: token, Transport: trusting(t, ca)})
	require.NoError(t, err)
	var first string
	require.NoError(t, c.Use(t.Context(), crawling.Want{Target: siteHost, Selector: map[string]string{"geo": "eu"}}, func(ctx context.Context, l *crawling.Lease) error {
		first = l.Proxy.Name
		resp, err := l.HTTPClient().Get("https://" + siteHost + "/picky")
		require.NoError(t, err)
		defer resp.Body.Close()
		outcome := crawling.Judge(resp, err)
		assert.Equal(t, crawling.RateLimited, outcome.Report.Result)
		assert.Equal(t, 1, w.active())
		return l.Report(ctx, outcome.Report)
	}))
	w.givenBack()
	require.NoError(t, c.Use(t.Context(), crawling.Want{Target: siteHost}, func(_ context.Context, l *crawling.Lease) error {
		assert.NotEqual(t, first, l.Proxy.Name)
		resp, err := l.HTTPClient().Get("https://" + siteHost + "/picky")
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		return nil
	}))
	w.givenBack()
}

// TestCrawlee crawls with a real Crawlee: the site turns the first proxy away,
// and all pages come by the second.
func TestCrawlee(t *testing.T) {
	t.Parallel()
	dir := installCrawlee(t)
	w := newWorld(t)
	out, err := w.run(dir, "node", "crawl.mjs", "https://"+siteHost+"/picky/1", "https://"+siteHost+"/picky/2", "https://"+siteHost+"/picky/3")
	require.NoError(t, err, out)
	pages := map[string]string{}
	sessions := map[string]bool{}
	for line := range strings.Lines(out) {
		var page struct{ URL, Text, Session, Error string }
		if !strings.HasPrefix(line, `{"url"`) || json.Unmarshal([]byte(line), &page) != nil {
			continue // of Crawlee's own log
		}
		assert.Empty(t, page.Error)
		pages[page.URL], sessions[page.Session] = page.Text, true
	}
	assert.Len(t, pages, 3, out)
	for url, text := range pages {
		assert.Equal(t, "reached", text, url)
	}
	assert.Len(t, sessions, 1, "all by the second proxy")
	w.givenBack()
	_, body, _ := w.discovery.ask(http.MethodPost, "/v1/leases", `{"target":"`+siteHost+`","exclude":["`+w.other()+`"]}`)
	assert.EqualValues(t, 1, body["inCooldown"], "the first one was reported: %v", body)
}

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
