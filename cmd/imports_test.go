package cmd_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/"

// allowed says which top-level folders a top-level folder may import beside
// itself. The process folders, in the middle, know nothing of each other.
func allowed() map[string][]string {
	shared := []string{"api", "internal", "metacontroller"}
	return map[string][]string{
		"api":            {},
		"client":         {}, // for others to import: the standard library alone
		"manifests":      {},
		"metacontroller": {},
		"internal":       {"api"},
		"webhooks":       shared,
		"prober":         shared,
		"discovery":      shared,
		"cloud":          shared,
		"stack":          append([]string{"manifests"}, shared...),
		"cmd":            {"api", "internal", "metacontroller", "webhooks", "prober", "discovery", "cloud", "stack"},
	}
}

// imports returns what each Go file of ours imports, by its path from the top.
// Test files are left out: they may use what they like.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	root := ".."
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(filepath.ToSlash(path), "../")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || rel == "tools"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			out[rel] = append(out[rel], name)
		}
		return nil
	}))
	require.Greater(t, len(out), 100, "the walk must have seen our files")
	return out
}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	for file, imported := range imports(t) {
		from, _, _ := strings.Cut(file, "/")
		may, known := allowed()[from]
		assert.True(t, known, "%s: the folder %s has no place in the order of imports yet; give it one here", file, from)
		seen[from] = true
		for _, name := range imported {
			inner, ours := strings.CutPrefix(name, module)
			to, _, _ := strings.Cut(inner, "/")
			if ours && to != from && !slices.Contains(may, to) {
				t.Errorf("%s imports %s: %s may import %v only; what both need belongs into api or internal", file, inner, from, may)
			}
		}
	}
	for folder := range allowed() {
		assert.True(t, seen[folder], "there is no folder %s any more", folder)
	}
}

// Metacontroller does all that controller-runtime would: two of them would watch
// everything twice.
func TestNoControllerRuntime(t *testing.T) {
	for file, imported := range imports(t) {
		for _, name := range imported {
			assert.False(t, strings.HasPrefix(name, "sigs.k8s.io/controller-runtime"), "%s imports %s", file, name)
		}
	}
}
