package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"path/filepath"

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
	dir := filepath.Join(javaScript(t), "examples", "crawlers", "crawlee")
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
