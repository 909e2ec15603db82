// Command lint holds the analyzers that go vet and staticcheck lack, as a tool for
// go vet -vettool: so go caches what they found, package by package. Each is here
// since it finds what is wrong and not what is a matter of taste; the rules of form
// are in revive.toml beside it.
package main

import (
	"strings"

	"4d63.com/gochecknoglobals/checknoglobals"
	"github.com/Antonboom/testifylint/analyzer"
	"github.com/charithe/durationcheck"
	"github.com/polyfloyd/go-errorlint/errorlint"
	"go-simpler.org/sloglint"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/nilness"
	"golang.org/x/tools/go/analysis/passes/unusedwrite"
	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() {
	unitchecker.Main(
		durationcheck.Analyzer,  // durations multiplied with each other
		errorlint.NewAnalyzer(), // errors compared or wrapped so that causes are lost
		globals(),               // state of a package
		logs(),                  // logs of a kind of their own
		nilness.Analyzer,        // nil pointers that are sure to be followed
		testify(),               // tests that cannot fail, or fail in the wrong goroutine
		unusedwrite.Analyzer,    // fields that are set and never read
	)
}

func logs() *analysis.Analyzer {
	return sloglint.New(&sloglint.Options{NoGlobalLogger: "all", NoMixedArguments: true})
}

// globals leaves out tests, which share what is dear to make.
func globals() *analysis.Analyzer {
	a := checknoglobals.Analyzer()
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			if !strings.HasSuffix(pass.Fset.Position(d.Pos).Filename, "_test.go") {
				report(d)
			}
		}
		return run(pass)
	}
	return a
}

// testify leaves out what is a matter of taste, or wrong here: bytes are compared
// where bytes matter.
func testify() *analysis.Analyzer {
	a := analyzer.New()
	if err := a.Flags.Set("disable", "encoded-compare,expected-actual,float-compare,formatter,require-error"); err != nil {
		panic(err) // it has that flag
	}
	return a
}
