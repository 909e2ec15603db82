package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// file is one Go file of the checkout.
type file struct {
	path     string // slash-separated, from the root
	lines    int
	comments []comment
	syntax   *ast.File
}

// comment is one line of a comment.
type comment struct {
	line int
	text string
}

func (f file) dir() string  { return path.Dir(f.path) }
func (f file) room() string { room, _, _ := strings.Cut(f.path, "/"); return room }
func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// readTree reads all Go files but generated ones.
func readTree(root string) ([]file, error) {
	var out []file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != root && skipped(entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, generated, err := readFile(root, name)
		if err == nil && !generated {
			out = append(out, f)
		}
		return err
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no Go file under %s", root)
	}
	return out, err
}

func skipped(name string) bool {
	return strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "dist" || name == "bin"
}

func readFile(root, name string) (file, bool, error) {
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return file{}, false, err
	}
	src, err := os.ReadFile(name)
	if err != nil {
		return file{}, false, err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return file{}, false, err
	}
	f := file{path: filepath.ToSlash(rel), lines: bytes.Count(src, []byte("\n")), syntax: parsed}
	for _, group := range parsed.Comments {
		for _, c := range group.List {
			if directive(c.Text) {
				continue
			}
			at := set.Position(c.Pos()).Line
			for i, text := range strings.Split(c.Text, "\n") {
				f.comments = append(f.comments, comment{line: at + i, text: text})
			}
		}
	}
	return f, ast.IsGenerated(parsed), nil
}

// directive reports comments for tools, such as //go:embed and kubebuilder markers.
func directive(text string) bool {
	return strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint") || strings.HasPrefix(strings.TrimLeft(text, "/ "), "+")
}
