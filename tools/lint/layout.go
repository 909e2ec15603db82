package main

import (
	"go/ast"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// module is the path of the module that these rules are for.
const module = "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/"

// sharedRooms are what every process folder may import.
var sharedRooms = []string{"api", "internal", "metacontroller"}

// mayImport lists, for each top-level folder, the other top-level folders that its
// packages may import. Process folders do not import each other.
var mayImport = map[string][]string{
	"api":            {},
	"client":         {}, // other modules import it: the standard library alone
	"manifests":      {},
	"metacontroller": {},
	"internal":       {"api"},
	"webhooks":       sharedRooms,
	"prober":         sharedRooms,
	"discovery":      sharedRooms,
	"cloud":          sharedRooms,
	"stack":          append([]string{"manifests", "client"}, sharedRooms...),
	"cmd":            append([]string{"client", "webhooks", "prober", "discovery", "cloud", "stack"}, sharedRooms...),
}

// processRooms are folders whose root package wires the packages below it. The
// packages below never import the root: dependencies point one way.
var processRooms = []string{"webhooks", "prober", "discovery", "cloud"}

var imports = &analysis.Analyzer{
	Name: "imports",
	Doc:  "reports imports against the direction of the layout: cmd -> process folders -> metacontroller, api, internal",
	Run:  runImports,
}

func runImports(pass *analysis.Pass) (any, error) {
	from, ours := strings.CutPrefix(pass.Pkg.Path(), module)
	if !ours {
		return nil, nil
	}
	eachImport(pass, func(spec *ast.ImportSpec, path string) {
		if strings.HasPrefix(path, "sigs.k8s.io/controller-runtime") {
			pass.Reportf(spec.Pos(), "%s imports controller-runtime: Metacontroller owns the watches, a second cache would hold every object twice", from)
		}
		to, ours := strings.CutPrefix(path, module)
		if !ours {
			return
		}
		if problem := direction(from, to); problem != "" {
			pass.Reportf(spec.Pos(), "%s", problem)
		}
	})
	return nil, nil
}

// direction returns why the package from may not import the package to, or "".
func direction(from, to string) string {
	fromRoom, _, below := strings.Cut(from, "/")
	toRoom, _, _ := strings.Cut(to, "/")
	if fromRoom == toRoom {
		if below && to == toRoom && contains(processRooms, toRoom) {
			return from + " imports " + to + ": the root of a process folder wires the packages below it and is not imported by them"
		}
		return ""
	}
	allowed, known := mayImport[fromRoom]
	switch {
	case !known:
		return "the folder " + fromRoom + " has no place in the order of imports: add it to mayImport in tools/lint/layout.go"
	case !contains(allowed, toRoom):
		return from + " imports " + to + ": packages of " + fromRoom + " may import " + strings.Join(allowed, ", ") + " alone"
	}
	return ""
}

// eachImport visits the imports of the files that are not tests.
func eachImport(pass *analysis.Pass, visit func(spec *ast.ImportSpec, path string)) {
	for _, file := range productFiles(pass) {
		for _, spec := range file.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil {
				visit(spec, path)
			}
		}
	}
}

// productFiles are the files of the package that are neither tests nor generated.
func productFiles(pass *analysis.Pass) []*ast.File {
	var out []*ast.File
	for _, file := range pass.Files {
		if !isTest(pass, file) && !ast.IsGenerated(file) {
			out = append(out, file)
		}
	}
	return out
}

func isTest(pass *analysis.Pass, file *ast.File) bool {
	return strings.HasSuffix(fileName(pass, file), "_test.go")
}

func fileName(pass *analysis.Pass, file *ast.File) string {
	return filepath.Base(pass.Fset.Position(file.Package).Filename)
}

func contains(list []string, s string) bool {
	for _, have := range list {
		if have == s {
			return true
		}
	}
	return false
}
