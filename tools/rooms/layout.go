package main

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// maxFiles is the most files of a package, tests aside.
const maxFiles = 20

// minTwins is the smallest share of test files, in per cent, that are named after
// the file they test.
const minTwins = 60

// The most lines without tests. They are what the tree has, rounded up: a change
// that grows it past them raises them in the same commit, with the reason. The aim is
// 26,500 and 21,500.
const (
	maxProduct     = 30500
	maxScaffolding = 23000
)

// scaffolding are the folders of stand-ins, of the local stack and of what tests
// build on.
var scaffolding = []string{
	"stack", "metacontroller/standin", "cloud/gcestandin", "cloud/provider/providertest",
	"discovery/store/storetest", "discovery/store/journal/journaltest", "discovery/store/redis/redistest",
	"prober/probetest", "internal/connectproxy", "internal/stores", "internal/testwait", "internal/soaktest", "internal/docpages", "internal/program/programtest",
	"cmd/stack", "cmd/connectproxy", "cmd/metacontroller-standin", "cmd/gcestandin", "cmd/node", "cmd/pause",
	"webhooks/proxytest",
}

func isScaffolding(dir string) bool {
	return slices.ContainsFunc(scaffolding, func(s string) bool { return dir == s || strings.HasPrefix(dir, s+"/") })
}

// reportLayout prints sizes, files per package and test twins, and returns what is
// past its goal.
func reportLayout(out io.Writer, files []file) []string {
	product, scaffold, tests, twins := 0, 0, 0, 0
	perDir, names := map[string]int{}, map[string]bool{}
	for _, f := range files {
		names[f.path] = true
	}
	for _, f := range files {
		switch {
		case f.room() == "tools":
		case f.isTest():
			tests++
			if names[strings.TrimSuffix(f.path, "_test.go")+".go"] {
				twins++
			}
		case isScaffolding(f.dir()):
			scaffold += f.lines
			perDir[f.dir()]++
		default:
			product += f.lines
			perDir[f.dir()]++
		}
	}
	share := 100 * twins / max(1, tests)
	fmt.Fprintf(out, "product %d lines, scaffolding %d lines, %d test files, %d %% with a twin\n", product, scaffold, tests, share)
	var problems []string
	if product > maxProduct {
		problems = append(problems, fmt.Sprintf("%d lines of product, want <= %d", product, maxProduct))
	}
	if scaffold > maxScaffolding {
		problems = append(problems, fmt.Sprintf("%d lines of scaffolding, want <= %d", scaffold, maxScaffolding))
	}
	if share < minTwins {
		problems = append(problems, fmt.Sprintf("%d %% of the test files are named after the file they test, want >= %d %%", share, minTwins))
	}
	for _, dir := range sortedKeys(perDir) {
		if perDir[dir] > maxFiles {
			problems = append(problems, fmt.Sprintf("%s has %d files, want <= %d", path.Clean(dir), perDir[dir], maxFiles))
		}
	}
	return problems
}
