package cmd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folder is a package of ours, test files included.
type folder struct {
	starts  string   // a file that starts a goroutine, "" when none does
	tests   bool     // it has tests
	goleak  bool     // whose TestMain looks for leaks
	imports []string // folders of ours
}

// TestGoroutinesAreLookedAfter: every package that starts goroutines, itself or in
// its tests, looks for leaked ones when its tests are over. A package without
// tests is looked after by those who use it.
func TestGoroutinesAreLookedAfter(t *testing.T) {
	all := folders(t)
	starting := 0
	for name, f := range all {
		if f.starts == "" {
			continue
		}
		starting++
		if f.tests {
			assert.True(t, f.goleak, "%s starts a goroutine: add to the package's tests: func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }", f.starts)
			continue
		}
		used := false
		for user, g := range all {
			if !slices.Contains(g.imports, name) || !g.tests {
				continue
			}
			used = true
			assert.True(t, g.goleak, "%s uses %s, which starts goroutines and has no tests of its own: let its TestMain look for leaks, with goleak", user, name)
		}
		assert.True(t, used, "%s starts a goroutine, and no package with tests uses it", f.starts)
	}
	require.Greater(t, starting, 30, "the walk must have seen our files")
}

// folders reads all Go files but those of tools, which are modules of their own.
func folders(t *testing.T) map[string]*folder {
	t.Helper()
	out := map[string]*folder{}
	require.NoError(t, filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(filepath.ToSlash(file), "../")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "node_modules" || rel == "tools"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(file, ".go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name := path.Dir(rel)
		if out[name] == nil {
			out[name] = &folder{}
		}
		out[name].add(rel, parsed)
		return nil
	}))
	return out
}

func (f *folder) add(name string, file *ast.File) {
	f.tests = f.tests || strings.HasSuffix(name, "_test.go")
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // it was parsed
		f.goleak = f.goleak || imported == "go.uber.org/goleak"
		if inner, ours := strings.CutPrefix(imported, module); ours {
			f.imports = append(f.imports, inner)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if startsGoroutine(n) {
			f.starts = name
		}
		return f.starts == ""
	})
}

// startsGoroutine knows go statements, errgroups and wait groups, and servers for
// tests.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains([]string{"Go", "AfterFunc", "NewServer", "NewTLSServer", "NewUnstartedServer"}, f.Sel.Name)
	}
	return false
}
