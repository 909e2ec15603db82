package main

import (
	"go/ast"
	"go/token"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// comments asks for what revive's rule does not: it would dictate how comments of
// constants and variables begin.
var comments = &analysis.Analyzer{
	Name: "comments",
	Doc:  "reports exported constants and variables without a comment of their own or of their group",
	Run:  runComments,
}

func runComments(pass *analysis.Pass) (any, error) {
	if !strings.HasPrefix(pass.Pkg.Path(), module) {
		return nil, nil
	}
	for _, file := range productFiles(pass) {
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST && group.Tok != token.VAR || group.Doc != nil {
				continue
			}
			for _, spec := range group.Specs {
				reportUncommented(pass, spec)
			}
		}
	}
	return nil, nil
}

func reportUncommented(pass *analysis.Pass, spec ast.Spec) {
	value, ok := spec.(*ast.ValueSpec)
	if !ok || value.Doc != nil || value.Comment != nil {
		return
	}
	for _, name := range value.Names {
		if name.IsExported() {
			pass.Reportf(name.Pos(), "%s is exported and has no comment", name.Name)
		}
	}
}
