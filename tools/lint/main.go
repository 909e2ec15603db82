// Command lint holds the analyzers that go vet and staticcheck lack, as a tool for
// go vet -vettool, so that Go caches the findings package by package. Each finds
// defects or holds a rule of this project; the rules of form are in revive.toml.
package main

import (
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
		logs(),                  // logs of a kind of their own
		nilness.Analyzer,        // nil pointers that are sure to be followed
		testify(),               // tests that cannot fail, or fail in the wrong goroutine
		unusedwrite.Analyzer,    // fields that are set and never read
		imports,                 // imports against the direction of the layout
		pure,                    // I/O, clocks and randomness in packages that only decide
		state,                   // package variables that change
		comments,                // exported constants and variables without a comment
	)
}

func logs() *analysis.Analyzer {
	return sloglint.New(&sloglint.Options{NoGlobalLogger: "all", NoMixedArguments: true})
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
