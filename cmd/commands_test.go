package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/docpages"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

// aCommand matches a line that a reader is to type.
var aCommand = regexp.MustCompile(`^(\$ )?([A-Z_]+=\S+ )*(make|kubectl|curl|go (run|test|build)|scripts/\S+\.sh|bin/\S+|gcloud|skopeo|docker|kind|kustomize|apt-get|openssl|export|for|redis-cli|ctr|python3?|npm|cp|tar)( |$)`)

// missing are the things that no test here has, and that a reader may lack too.
var missing = []string{"a cloud", "a registry", "cert-manager", "Metacontroller's program", "Docker"}

// Each block of commands names the test that runs it, and that test exists and
// asks for its blocks; or the block names what it needs that no test has. No other
// block has commands.
func TestEveryCommandIsRunOrMarked(t *testing.T) {
	run := 0
	for _, b := range docpages.Blocks(t, "..") {
		switch {
		case b.Language != "sh":
			for line := range strings.Lines(b.Text) {
				assert.False(t, b.Language == "" && aCommand.MatchString(line), "%s: fence commands as sh: %s", b, line)
			}
		case b.RunBy != "":
			run++
			assert.Empty(t, b.Needs, "%s: run, or not?", b)
			assertRuns(t, b)
		case b.Needs == "":
			assert.Fail(t, "neither run nor marked", "%s: say which test runs it, as internal/docpages explains, or begin it with \"# needs ...\"", b)
		default:
			assert.Contains(t, missing, b.Needs, "%s: needs what?", b)
		}
	}
	assert.Greater(t, run, 15)
}

// assertRuns wants the test that a block names to exist and to ask for its blocks.
func assertRuns(t *testing.T, b docpages.Block) {
	t.Helper()
	name, folder, _ := strings.Cut(b.RunBy, " in ")
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		if _, body, found := strings.Cut(string(content), "\nfunc "+name+"(t *testing.T) {\n"); found {
			body, _, _ = strings.Cut(body, "\n}\n")
			assert.Contains(t, body, `docpages.Mine(t, `, "%s: %s does not ask for the blocks that it runs", b, name)
			return
		}
	}
	assert.Fail(t, "no such test", "%s: %s", b, b.RunBy)
}

// made maps each make target of the documents to its test. "ci" means that
// `make ci` makes it.
var made = map[string]string{
	"demo": "cmd/stack TestDemo", "up": "cmd/stack TestUpPrintsCommandsThatWork", "images": "ci e2e", "release": "ci", "test": "ci", "ci": "ci test",
	"e2e": "ci", "lint": "ci", "verify": "ci", "generate": "ci verify", "assets": "ci", "build": "ci", "help": "cmd TestMakeTargetsExist",
	"install": "metacontroller/install TestInstallByTheREADME", "install-metacontroller": "metacontroller/install TestInstallByTheREADME",
	"kind":      "manifests TestKind",
	"uninstall": "metacontroller/install TestDocumentedUninstall",
	"crawl":     "cmd/stack TestCrawlComparesTheThreeWays",
	"fuzz":      "long", "bench": "long", "soak": "long", "chaos": "ci chaos-short", "chaos-short": "ci",
}

// Every make target that the documents name is made by a test or by CI, or takes
// long.
func TestMakeCommands(t *testing.T) {
	var targets []string
	for _, b := range docpages.Mine(t, "..", "cmd") {
		for _, command := range b.Commands() {
			target, found := strings.CutPrefix(command, "make ")
			require.True(t, found, command)
			targets = append(targets, target)
		}
	}
	for _, in := range docpages.Inlines(t, "..") {
		if m := regexp.MustCompile(`^make ([a-z0-9-]+)`).FindStringSubmatch(in.Text); m != nil {
			targets = append(targets, m[1])
		}
	}
	for _, target := range targets {
		assert.Contains(t, made, target, "which test makes it?")
	}
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	var ci []string
	for _, m := range regexp.MustCompile(`(?m)^(?:test|ci): (.*) ##`).FindAllStringSubmatch(string(makefile), -1) {
		ci = append(ci, strings.Fields(m[1])...)
	}
	for target, by := range made {
		folder, test, _ := strings.Cut(by, " ")
		switch folder {
		case "ci":
			part := map[string]string{"e2e": "e2e-if-possible", "build": "chaos-short"}[target+test]
			if part == "" {
				part = map[bool]string{true: target, false: strings.Replace(test, "e2e", "e2e-if-possible", 1)}[test == ""]
			}
			assert.Contains(t, ci, part, target)
		case "long":
		default:
			out, err := exec.Command("grep", "-rlE", "--include=*_test.go", "^func "+test+`\(`, "../"+folder).Output()
			assert.NoError(t, err, by)
			assert.NotEmpty(t, out, by)
		}
	}
}

const (
	named  = "the name of a command, not a call"
	docker = "needs Docker or a node"
)

// elsewhere lists commands in the text that nothing here runs, with the reason.
var elsewhere = map[string]string{
	"kind": named, "curl": named, "curl -I": named, "curl -d": named, "kubectl": named, "kubectl scale": named, "kubectl describe px": named, "kubectl rollout undo": named,
	"export DISCOVERY=": named, "apt-get install squid": "scripts/deps.sh does it", "ctr images import": "make e2e does it", "kind load image-archive": docker,
	`curl -x "$PROXY_URL" https://shop.example/`:                                                 "the last block of the page does it",
	"curl localhost:8082/debug/probes/NAMESPACE/NAME":                                            "the prober's tests ask for it",
	"kubectl -n egress-proxies port-forward deploy/prober 8082":                                  docker,
	"go build ./pkg/cmd/metacontroller":                                                          "in a checkout of Metacontroller",
	"bin/stack demo --metacontroller /path/to/metacontroller --apply-strategy server-side-apply": "TestDemoOnTheRealMetacontroller in cmd/stack, where METACONTROLLER is set",
	"METACONTROLLER=/path/to/metacontroller make demo":                                           "TestDemoOnTheRealMetacontroller in cmd/stack, where it is set",
	"npm pack": "client/js/test/package.test.js does it", "npm install": named,
	"bin/echo":                             named,
	"bin/egress-proxies lease --help":      "TestHelp in cmd/egress-proxies",
	"bin/echo --help":                      "the tests of cmd/echo ask for it",
	"go test ./...":                        "this",
	"go run -C tools ./rooms -list FOLDER": "make lint runs tools/rooms",
}

// Commands in the text of the pages are run here or by TestInlineKubectl in
// manifests, or what they name exists.
func TestInlineCommands(t *testing.T) {
	certs := certsProgram(t)
	for _, in := range docpages.Inlines(t, "..") {
		if !aCommand.MatchString(in.Text) {
			continue
		}
		if _, known := elsewhere[in.Text]; known {
			continue
		}
		word, rest, _ := strings.Cut(in.Text, " ")
		switch {
		case word == "kubectl": // by TestInlineKubectl
		case word == "make": // by TestMakeCommands
		case strings.HasPrefix(in.Text, "go test "):
			assertTests(t, in.Text)
		case strings.HasPrefix(rest, "run ./cmd/certs"):
			certs(in.Text)
		case strings.HasPrefix(word, "scripts/"):
			out, err := exec.Command(filepath.Join("..", word), "--help").CombinedOutput()
			assert.NoError(t, err, "%s: %s: %s", in.Page, in.Text, out)
		default:
			assert.Fail(t, "neither run nor explained", "%s: %s", in.Page, in.Text)
		}
	}
}

// assertTests wants the tests and benchmarks that a go test runs to be there.
func assertTests(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(command, "'", ""))
	for i, word := range words {
		if word != "-run" && word != "-bench" || words[i+1] == "^$" {
			continue
		}
		kind := map[string]string{"-run": "Test", "-bench": "Benchmark"}[word]
		for _, folder := range words[2:] {
			if folder, found := strings.CutPrefix(folder, "./"); found {
				found := exec.Command("grep", "-rqE", "--include=*_test.go", "^func "+kind+`\w*(`+words[i+1]+`)`, "../"+folder).Run()
				assert.NoError(t, found, "%s: no %s of that name in %s", command, kind, folder)
			}
		}
	}
}

// certsProgram runs certs as the page about it has it, one folder for all calls.
func certsProgram(t *testing.T) func(command string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, programtest.Build(dir, "./certs"))
	call := func(command string, in string) {
		args := append(strings.Fields(command)[3:], "--out", filepath.Join(dir, "tls"))
		cmd := exec.Command(filepath.Join(dir, "certs"), args...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s: %s", command, out)
	}
	call("go run ./cmd/certs", "")
	return func(command string) {
		if slices.Contains(strings.Fields(command), "--ca-file") { // a folder that cert-manager's authority is in
			return // TestCAFile in cmd/certs
		}
		call(command, "")
	}
}
