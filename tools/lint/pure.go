package main

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// pureRooms are the packages that only decide: the same input gives the same
// output, so that tests need no clock, no network and no API server.
var pureRooms = []string{
	"api/v1alpha1",
	"prober/health",
	"prober/outage",
	"webhooks/proxy",
}

// impureImports are packages by which a decision could depend on more than its
// input. A trailing slash means the packages below.
var impureImports = []string{
	"net/http", "net/rpc", "os", "os/", "io/fs", "io/ioutil", "syscall", "database/sql",
	"math/rand", "math/rand/", "crypto/rand", "log",
	"k8s.io/client-go/", "github.com/prometheus/", "k8s.io/utils/clock", "k8s.io/utils/clock/",
}

// impureCalls are functions of packages that are otherwise pure.
var impureCalls = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
}

// pureNet are the functions of net that only transform text.
var pureNet = []string{"JoinHostPort", "SplitHostPort", "ParseIP", "ParseCIDR"}

var pure = &analysis.Analyzer{
	Name: "pure",
	Doc:  "reports I/O, clocks, randomness and goroutines in packages that only decide",
	Run:  runPure,
}

func runPure(pass *analysis.Pass) (any, error) {
	name, ours := strings.CutPrefix(pass.Pkg.Path(), module)
	if !ours || !contains(pureRooms, name) {
		return nil, nil
	}
	eachImport(pass, func(spec *ast.ImportSpec, path string) {
		if isImpure(path) {
			pass.Reportf(spec.Pos(), "%s is pure and must not import %s: pass the value in", name, path)
		}
	})
	for _, file := range productFiles(pass) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				pass.Reportf(n.Pos(), "%s is pure and must not start goroutines", name)
			case *ast.SelectorExpr:
				if call := impureCall(pass, n); call != "" {
					pass.Reportf(n.Pos(), "%s is pure and must not use %s: pass the value in", name, call)
				}
			}
			return true
		})
	}
	return nil, nil
}

func isImpure(path string) bool {
	for _, p := range impureImports {
		if path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

func impureCall(pass *analysis.Pass, s *ast.SelectorExpr) string {
	fn, ok := pass.TypesInfo.Uses[s.Sel].(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Signature().Recv() != nil {
		return ""
	}
	path := fn.Pkg().Path()
	if contains(impureCalls[path], fn.Name()) || path == "net" && !contains(pureNet, fn.Name()) {
		return path + "." + fn.Name()
	}
	return ""
}
