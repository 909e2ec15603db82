package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// module is the path of the module that is measured.
const module = "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/"

// minStarting is how many packages start goroutines at least. Fewer mean that the
// tree was not read.
const minStarting = 30

// pkg is what matters of a package for the rule about goroutines, test files
// included.
type pkg struct {
	starts  string   // a file that starts a goroutine, "" when none does
	tests   bool     // it has tests
	goleak  bool     // they look for leaks
	imports []string // packages of this module
}

// reportGoroutines returns the packages that start goroutines, themselves or in
// their tests, while no test looks for leaked ones. A package without tests is
// covered by the tests of the packages that import it.
func reportGoroutines(files []file) []string {
	all := packages(files)
	var problems []string
	starting := 0
	for _, name := range sortedKeys(all) {
		p := all[name]
		switch {
		case p.starts == "":
			continue
		case p.tests && !p.goleak:
			problems = append(problems, p.starts+" starts a goroutine: add to the package's tests: func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }")
		case !p.tests:
			problems = append(problems, uncovered(all, name)...)
		}
		starting++
	}
	if starting < minStarting {
		problems = append(problems, fmt.Sprintf("only %d packages start goroutines: the tree was not read", starting))
	}
	return problems
}

// uncovered returns what is missing for the package name, which has no tests.
func uncovered(all map[string]*pkg, name string) []string {
	var problems []string
	used := false
	for _, user := range sortedKeys(all) {
		u := all[user]
		if !u.tests || !slices.Contains(u.imports, name) {
			continue
		}
		used = true
		if !u.goleak {
			problems = append(problems, fmt.Sprintf("%s uses %s, which starts goroutines and has no tests: let its TestMain look for leaks, with goleak", user, name))
		}
	}
	if !used {
		problems = append(problems, all[name].starts+" starts a goroutine, and no package with tests uses it")
	}
	return problems
}

func packages(files []file) map[string]*pkg {
	out := map[string]*pkg{}
	for _, f := range files {
		if f.room() == "tools" {
			continue
		}
		name := f.dir()
		if out[name] == nil {
			out[name] = &pkg{}
		}
		out[name].add(f)
	}
	return out
}

func (p *pkg) add(f file) {
	p.tests = p.tests || f.isTest()
	for _, spec := range f.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		p.goleak = p.goleak || imported == "go.uber.org/goleak"
		if inner, ours := strings.CutPrefix(imported, module); ours {
			p.imports = append(p.imports, inner)
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if startsGoroutine(n) {
			p.starts = f.path
		}
		return p.starts == ""
	})
}

// starters are functions that start goroutines: of errgroups, wait groups, timers,
// and servers for tests.
var starters = []string{"Go", "AfterFunc", "NewServer", "NewTLSServer", "NewUnstartedServer"}

func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains(starters, f.Sel.Name)
	}
	return false
}
