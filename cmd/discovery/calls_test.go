package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/docpages"
)

// TestDocumentedCalls runs the calls of the API that the pages show, as they
// stand there, against a real discovery and real proxies. Each must succeed.
func TestDocumentedCalls(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not in PATH", program)
		}
	}
	w := newWorld(t)
	home := t.TempDir()
	// The site's certificate is for another name than that of the pages.
	require.NoError(t, os.WriteFile(filepath.Join(home, ".curlrc"), []byte("insecure\nfail-with-body\nsilent\nshow-error\n"), 0o600))
	for _, block := range docpages.Mine(t, "../..", "cmd/discovery") {
		var lease string
		if strings.Contains(block.Text, "$LEASE") {
			code, grant, _ := w.discovery.ask(http.MethodPost, "/v1/leases", `{"target":"elsewhere.example"}`)
			require.Equal(t, http.StatusCreated, code)
			lease = grant["leaseID"].(string)
		}
		// A variable that the page sets wins where it is set, as for a reader.
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block.Text)
		cmd.Env = append(w.env(), "CURL_HOME="+home, "DISCOVERY="+w.discovery.api, "TOKEN="+token, "AUTH=Authorization: Bearer "+token, "LEASE="+lease, "PROXY="+w.namespace+"/p0")
		cmd.Env = append(cmd.Env, "no_proxy=", "NO_PROXY=") // through the leased one
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s: %s%s", block, block.Text, out)
		w.giveAllBack(string(out), lease)
	}
}

// TestCrawlOfKind is what a Pod does in `make kind`.
func TestCrawlOfKind(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not in PATH")
	}
	w := newWorld(t)
	crawl := func(bearer string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "../../scripts/kind-crawl.sh")
		cmd.Stdin = strings.NewReader(bearer + "\n")
		cmd.Env = append(w.env(), "DISCOVERY="+w.discovery.api, "TARGET=https://"+siteHost+"/", "CURL_CA_BUNDLE="+w.caFile, "no_proxy=", "NO_PROXY=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := crawl(token)
	require.NoError(t, err, out)
	assert.Equal(t, "crawled https://"+siteHost+"/ through a leased proxy: 200\n", out)
	w.givenBack()
	out, err = crawl("another-token-altogether")
	require.Error(t, err)
	assert.Contains(t, out, "401")
}

// giveAllBack releases a lease, and that which an answer grants.
func (w *world) giveAllBack(answer, lease string) {
	w.Helper()
	var grant struct{ LeaseID string }
	if start := strings.Index(answer, `{"leaseID"`); start >= 0 {
		require.NoError(w, json.NewDecoder(strings.NewReader(answer[start:])).Decode(&grant), answer)
	}
	for _, id := range []string{lease, grant.LeaseID} {
		if id != "" {
			code, _, _ := w.discovery.ask(http.MethodDelete, "/v1/leases/"+id, "")
			assert.Equal(w, http.StatusNoContent, code)
		}
	}
}
