package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

var state = &analysis.Analyzer{
	Name: "state",
	Doc:  "reports package variables that change, or whose type is made to change; tables that never change are fine",
	Run:  runState,
}

// stateful are packages whose types hold state.
var stateful = []string{"sync", "sync/atomic"}

func runState(pass *analysis.Pass) (any, error) {
	for _, file := range productFiles(pass) {
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				pass.Reportf(fn.Pos(), "init runs before main can decide anything: let main call it")
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			reportChange(pass, n)
			return true
		})
	}
	for _, name := range pass.Pkg.Scope().Names() {
		v, ok := pass.Pkg.Scope().Lookup(name).(*types.Var)
		if ok && !strings.HasSuffix(pass.Fset.Position(v.Pos()).Filename, "_test.go") && holdsState(v.Type()) {
			pass.Reportf(v.Pos(), "%s is state of the package: make it a field of a type that main constructs", name)
		}
	}
	return nil, nil
}

func holdsState(t types.Type) bool {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	if n, ok := t.(*types.Named); ok && n.Obj().Pkg() != nil && contains(stateful, n.Obj().Pkg().Path()) {
		return true
	}
	_, isChan := t.Underlying().(*types.Chan)
	return isChan
}

// reportChange reports n when it changes a package variable.
func reportChange(pass *analysis.Pass, n ast.Node) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			for _, lhs := range n.Lhs {
				reportVar(pass, lhs)
			}
		}
	case *ast.IncDecStmt:
		reportVar(pass, n.X)
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 {
			if b, ok := pass.TypesInfo.Uses[id].(*types.Builtin); ok && (b.Name() == "delete" || b.Name() == "clear" || b.Name() == "copy") {
				reportVar(pass, n.Args[0])
			}
		}
	}
}

func reportVar(pass *analysis.Pass, e ast.Expr) {
	if v := packageVar(pass, e); v != nil {
		pass.Reportf(e.Pos(), "%s is a package variable and must not change: make it a field of a type that main constructs", v.Name())
	}
}

// packageVar returns the package variable that e is, or is a part of.
func packageVar(pass *analysis.Pass, e ast.Expr) *types.Var {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			if v := asPackageVar(pass.TypesInfo.Uses[x.Sel]); v != nil {
				return v
			}
			e = x.X
		case *ast.Ident:
			return asPackageVar(pass.TypesInfo.Uses[x])
		default:
			return nil
		}
	}
}

func asPackageVar(o types.Object) *types.Var {
	v, ok := o.(*types.Var)
	if !ok || v.IsField() || v.Pkg() == nil || v.Parent() != v.Pkg().Scope() {
		return nil
	}
	return v
}
