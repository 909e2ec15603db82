// Package docpages finds the commands in our documents, for the tests that run
// them. Nothing but tests imports it.
//
// A block of commands is fenced as sh. Either a comment in the line above names the
// test that runs it,
//
//	<!-- run by TestOperatingGuide in manifests -->
//
// or its first line states a requirement that no test has:
//
//	# needs a cloud
package docpages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Block is a fenced block of a page.
type Block struct {
	// Page is its path from the top, Line that of the fence.
	Page string
	Line int
	// Language of the fence, such as sh.
	Language string
	Text     string
	// RunBy is "TestName in folder", Needs what no test has; "" without.
	RunBy, Needs string
}

// String is where it is.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Commands are its lines without comments, those that go on after a backslash as
// one.
func (b Block) Commands() []string {
	var out []string
	text := strings.ReplaceAll(b.Text, "\\\n", " ")
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

var (
	fence = regexp.MustCompile("^ *```(\\w*)$")
	runBy = regexp.MustCompile(`^ *<!-- run by (Test\w+ in [\w/-]+) -->$`)
	needs = regexp.MustCompile(`^# needs (.+)`)
	code  = regexp.MustCompile("`([^`\n]+)`")
)

// pages are those that people follow.
func pages(root string) ([]string, error) {
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list pages: %w", err)
	}
	return append([]string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}, docs...), nil
}

// Blocks returns the fenced blocks of all pages below root, the checkout.
func Blocks(t testing.TB, root string) []Block {
	t.Helper()
	var out []Block
	eachPage(t, root, func(page, content string) {
		blocks, _ := Split(page, content)
		out = append(out, blocks...)
	})
	return out
}

// Mine are the blocks that the test t runs, in order, and there must be some.
// folder is that of its package.
func Mine(t testing.TB, root, folder string) []Block {
	t.Helper()
	mine := slices.DeleteFunc(Blocks(t, root), func(b Block) bool { return b.RunBy != t.Name()+" in "+folder })
	if len(mine) == 0 {
		t.Fatalf("no block of a page is run by %s in %s", t.Name(), folder)
	}
	return mine
}

// Inline is a piece of code in a page's text.
type Inline struct{ Page, Text string }

// Inlines returns the code in the text of all pages below root.
func Inlines(t testing.TB, root string) []Inline {
	t.Helper()
	var out []Inline
	eachPage(t, root, func(page, content string) {
		_, text := Split(page, content)
		for _, m := range code.FindAllStringSubmatch(text, -1) {
			out = append(out, Inline{page, strings.ReplaceAll(m[1], `\|`, "|")}) // of a table
		}
	})
	return out
}

func eachPage(t testing.TB, root string, see func(page, content string)) {
	t.Helper()
	paths, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		see(page, string(content))
	}
}

// Split returns the blocks of a page and the text around them.
func Split(page, content string) (blocks []Block, text string) {
	var around strings.Builder
	var open *Block
	before := ""
	n := 0
	for line := range strings.Lines(content) {
		n++
		bare := strings.TrimRight(line, "\n")
		m := fence.FindStringSubmatch(bare)
		switch {
		case open == nil && m != nil:
			open = &Block{Page: page, Line: n, Language: m[1]}
			if mark := runBy.FindStringSubmatch(before); mark != nil {
				open.RunBy = mark[1]
			}
		case open != nil && m != nil && m[1] == "":
			if first := needs.FindStringSubmatch(open.Text); first != nil {
				open.Needs = first[1]
			}
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.Text += line
		default:
			around.WriteString(line)
		}
		before = bare
	}
	return blocks, around.String()
}
