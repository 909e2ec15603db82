package docpages

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSplit(t *testing.T) {
	page := "# A\n\nRun `make x` or `a | b`.\n\n<!-- run by TestX in manifests -->\n```sh\nkubectl get px   # all\n# not this\nfor p in a \\\n  b; do\n  echo $p\ndone\n```\n\n```sh\n# needs a cloud\ngcloud x\n```\n```\noutput\n```\nEnd `c`.\n"
	blocks, text := Split("A.md", page)
	require.Len(t, blocks, 3)
	assert.Equal(t, "A.md:6", blocks[0].String())
	assert.Equal(t, "TestX in manifests", blocks[0].RunBy)
	assert.Empty(t, blocks[0].Needs)
	assert.Equal(t, []string{"kubectl get px", "for p in a    b; do", "echo $p", "done"}, blocks[0].Commands())
	assert.Equal(t, "a cloud", blocks[1].Needs)
	assert.Empty(t, blocks[1].RunBy, "a mark is for the block right below")
	assert.Equal(t, []string{"gcloud x"}, blocks[1].Commands())
	assert.Empty(t, blocks[2].Language)
	assert.NotContains(t, text, "gcloud")
	assert.Contains(t, text, "End `c`.")
}

func TestPages(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range Blocks(t, "../..") {
		seen[b.Page] = true
	}
	assert.True(t, seen["README.md"])
	assert.True(t, seen["docs/operate.md"])
	assert.Contains(t, Inlines(t, "../.."), Inline{"docs/alerts.md", "kubectl -n egress-proxies get lease"})
}
