package cmd_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	codeBlock   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	heading     = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	filePath    = regexp.MustCompile("`([A-Za-z0-9_.-]+/[A-Za-z0-9_./-]*)`")
	makeCommand = regexp.MustCompile("(?m)(?:`|^)make ([a-z0-9-]+)")
	makeTarget  = regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// pages returns our documents by their paths from the top.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "dist" || name == "testdata" || name[0] == '.' && len(name) > 2):
			return filepath.SkipDir
		case filepath.Ext(name) == ".md":
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			found[path] = string(content)
		}
		return nil
	}))
	require.Contains(t, found, "../README.md")
	return found
}

// anchors are the fragments that links into a page may use: its headings, as the
// usual renderers transform them.
func anchors(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		text := notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
		out = append(out, strings.ReplaceAll(text, " ", "-"))
	}
	return out
}

// Links of the documents within the project lead to files and headings that exist.
func TestLinksAreNotBroken(t *testing.T) {
	all := pages(t)
	for path, page := range all {
		for _, m := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if to != "" {
				target = filepath.Join(filepath.Dir(path), to)
			}
			_, err := os.Stat(target)
			assert.NoError(t, err, "%s links to %s", path, m[1])
			if anchor != "" {
				assert.Contains(t, anchors(all[target]), anchor, "%s links to %s", path, m[1])
			}
		}
	}
}

// Files and folders that a document names by their path from the root exist. Only
// names that begin with one of our folders count; what `make` builds does not.
func TestNamedFilesExist(t *testing.T) {
	for path, page := range pages(t) {
		for _, m := range filePath.FindAllStringSubmatch(page, -1) {
			top, _, _ := strings.Cut(m[1], "/")
			_, err := os.Stat(filepath.Join("..", top))
			ambiguous := top == "components" && m[1] != "components/" // there are two such folders
			if err != nil && !ambiguous || top == "bin" || top == "dist" {
				continue
			}
			_, err = os.Stat(filepath.Join("..", m[1]))
			assert.NoError(t, err, "%s names %s", path, m[1])
		}
	}
}

// The make targets of the documents are in the Makefile, and `make help` lists them.
func TestMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	help, err := exec.Command("make", "-s", "-C", "..", "help").Output()
	require.NoError(t, err)
	for _, target := range targets {
		assert.Contains(t, string(help), "  make "+target+" ")
	}
	for path, page := range pages(t) {
		for _, m := range makeCommand.FindAllStringSubmatch(page, -1) {
			assert.Contains(t, targets, m[1], "%s names make %s", path, m[1])
		}
	}
}
