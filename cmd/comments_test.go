package cmd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExportedValuesAreDocumented: each exported constant and variable has a
// comment, its own or its group's. The linter asks for those of all else, and of
// these it would dictate how they begin.
func TestExportedValuesAreDocumented(t *testing.T) {
	seen := 0
	require.NoError(t, filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "tools" || len(entry.Name()) > 2 && entry.Name()[0] == '.'):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST && group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				value, _ := spec.(*ast.ValueSpec) // of a const or var there is no other
				for _, name := range value.Names {
					if name.IsExported() {
						seen++
						assert.True(t, group.Doc != nil || value.Doc != nil || value.Comment != nil, "%s: %s has no comment", set.Position(name.Pos()), name.Name)
					}
				}
			}
		}
		return nil
	}))
	require.Greater(t, seen, 200, "the walk must have seen our files")
}
