package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCrawlComparesTheThreeWays(t *testing.T) {
	r := newRig(t)
	c := r.start("crawl", "--duration", "4s", "--workers", "8", "--proxies", "6", "--pause", "100ms")
	require.NoError(t, c.Wait(), c.out)
	for _, way := range []string{"no proxy", "list of proxies", "leases"} {
		assert.Regexp(t, `(?m)^`+way+` +[1-9][0-9]* +[0-9]+ +0 `, c.out.String(), "pages, and no lease left")
	}
	r.nothingLeft()
}

func TestCrawlRefusesBadFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"workers: want 1 to 1000":         {"crawl", "--workers", "0"},
		"proxies: want 4 to 200":          {"crawl", "--proxies", "1"},
		"duration: want a second or more": {"crawl", "--duration", "1ms"},
	} {
		assert.ErrorContains(t, run(t.Context(), args, &bytes.Buffer{}), want)
	}
}
