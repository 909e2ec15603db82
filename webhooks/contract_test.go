package webhooks

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// The contract suite: what a hook must keep to so that Metacontroller can
// neither be tripped nor made to delete what it should keep. Each point is a
// test, run over every fixture, every recorded request and many generated ones.
//
// The answer (contract_pure_test.go, contract_status_test.go, answer_test.go)
//
//	TestContractDecidesPurely            same observation, same decision, nothing changed on the way
//	TestContractCallsOnlyTheAdapter      no other client, and no clock but the injected one
//	TestContractSameInputSameBytes       no order of a map, no randomness
//	TestContractNeverNull                not as the answer, not at any depth of it: null deletes every child
//	TestContractStrictRoundTrip          no field that hook API v2 does not know, none twice, nothing lost
//	TestContractChildrenAreComplete      apiVersion, kind, namespace, name up to 63 characters of DNS-1123; nothing of the server's
//	TestContractQuantitiesAreCanonical   as the API server stores them
//	TestContractStatusFitsTheCRD         a field that the CRD does not know is pruned, and differs for ever
//	TestContractStatusMakesSense         phase, conditions and address agree
//	TestContractNumbersStayIntegers      in the status and in children
//	TestContractNoWallClockInStatus      any clock, the same bytes, but for the one deadline
//	TestContractNoCountersInStatus       any number of calls, the same bytes
//	TestContractResyncsWhilePending      nothing else wakes a Proxy whose create was swallowed
//	TestContractUnknownNeverMeansDelete  an omitted child is a deleted child
//	TestContractUnknownKeepsVMs          and a VM goes only when that was decided, and is known until its end is
//
// Sync after sync (contract_settles_test.go)
//
//	TestContractSettlesUnderDynamicApply
//	TestContractSettlesUnderServerSideApply  a few calls, then the same answer for ever and no write
//	TestContractEditsSettle                  what an edit takes away is gone, and then the same
//	TestContractAPIServerKeepsOurChildren    the recorded defaults that those two rest on are still true
//
// Finalize and customize (contract_finalize_test.go, contract_customize_test.go)
//
//	TestContractFinalizeConverges            from everywhere, in a bounded number of calls
//	TestContractFinalizeIsIdempotent         a retry gets the same answer
//	TestContractFinalizeWaitsForChildren     finalized only when none is observed
//	TestContractCustomizeLooksAtTheSpecAlone the answer is cached by UID and generation
//	TestContractCustomizeRules               the four constraints on rules
//	BenchmarkCustomize                       fails above a millisecond
//
// HTTP (handler_test.go)
//
//	TestContractEncodesBeforeHeaders   a failed answer is an error, not half of one
//	TestContractPanicIs500             and counted
//	TestContractNotReadyIs429          with whole seconds in Retry-After, else thousands of calls a second
//	TestContractMissingKindIs500       not "no children"
//	TestContractUnknownKindIs500       an answer without those children would delete them
//	TestContractUnknownModeIs500       not a guess
//	TestContractBodyCap                413 above it
//	TestContractPOSTOnly               405
//	TestContractJSONOnly               415
//	TestContractErrorsAreShort         and in words: they become Events
//	TestContractMetrics                every hook, every code, every child left out

// contractCase is one request, the moment when it arrives and the hooks that it
// meets.
type contractCase struct {
	name, hook string
	body       []byte
	now        time.Time
	// budgetUsed: others are being replaced, so that this one has to wait.
	budgetUsed bool
	// cloud is the adapter that they ask, nil for one that knows no provider.
	cloud *fakeAdapter
	// known is the answer, where it is known already.
	known []byte
}

// hooks are fresh ones at that time.
func (c contractCase) hooks(now time.Time) *Hooks {
	o := testOptions()
	o.CloudInitSecrets = true
	o.Clock = clocktesting.NewFakePassiveClock(now)
	if o.Adapter = strangers(); c.cloud != nil {
		o.Adapter = c.cloud
	}
	// Written in another form than the API server's.
	k := o.Providers["pods"].Pods
	k.CPU, k.Memory = resource.MustParse("1000m"), resource.MustParse("1024Mi")
	h := New(o)
	if c.budgetUsed {
		h.budget.allow("pods", "somebody else", "x")
		h.budget.allow(proxytest.CloudProvider, "somebody else", "x")
	}
	return h
}

// answer is the one of fresh hooks at the case's time.
func (c contractCase) answer(t testing.TB) []byte {
	t.Helper()
	if c.known != nil {
		return c.known
	}
	return answerTo(t, c.hooks(c.now), c.hook, c.body)
}

// recordedCases are all fixtures and all recorded requests.
func recordedCases(t testing.TB) []contractCase {
	t.Helper()
	cases := append(casesIn(t, "testdata/hooks", ".request.json", proxytest.Noon()), casesIn(t, recordedDir, ".json", recordedAt())...)
	require.Greater(t, len(cases), 30)
	return cases
}

// generatedOnes are requests that might be met, the same every time.
func generatedOnes(t testing.TB) []contractCase {
	t.Helper()
	var cases []contractCase
	g := generator{rand.New(rand.NewPCG(2026, 11)), t}
	for range generatedCases {
		r := g.next()
		cases = append(cases,
			contractCase{hook: r.hook(), body: r.body(t), now: proxytest.Noon(), budgetUsed: !r.budget},
			contractCase{hook: "customize", body: r.customizeBody(t), now: proxytest.Noon()})
	}
	g = generator{rand.New(rand.NewPCG(2026, 12)), t}
	for range generatedVMs {
		r := g.vm()
		cases = append(cases, contractCase{hook: r.hook(), body: r.body(t), now: proxytest.Noon(), budgetUsed: !r.budget, cloud: r.cloud})
	}
	return cases
}

// casesIn reads the requests in a folder and below.
func casesIn(t testing.TB, dir, suffix string, now time.Time) []contractCase {
	t.Helper()
	var out []contractCase
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, suffix) {
			return err
		}
		body, err := os.ReadFile(path)
		if hook := hookFor(body); hook != "" {
			out = append(out, contractCase{name: path, hook: hook, body: body, now: now, cloud: fixtureAdapter(t, path)})
		}
		return err
	}))
	return out
}

// hookFor derives the hook from a request's fields, "" for other input.
func hookFor(body []byte) string {
	var r struct {
		Parent, Children json.RawMessage
		Finalizing       bool
	}
	switch err := json.Unmarshal(body, &r); {
	case err != nil || r.Parent == nil:
		return ""
	case r.Finalizing:
		return "finalize"
	case r.Children != nil:
		return "sync"
	}
	return "customize"
}

// forEachCase runs check on every request to one of those hooks, or to any.
func forEachCase(t *testing.T, check func(t *testing.T, c contractCase), hooks ...string) {
	t.Helper()
	runOne := func(t *testing.T, c contractCase) {
		defer func() {
			if t.Failed() {
				t.Logf("the request to %s was:\n%s", c.hook, c.body)
			}
		}()
		if len(hooks) == 0 || slices.Contains(hooks, c.hook) {
			check(t, c)
		}
	}
	for _, c := range recordedCases(t) {
		t.Run(filepath.Base(c.name), func(t *testing.T) { runOne(t, c) })
	}
	t.Run("generated", func(t *testing.T) {
		for _, c := range generatedOnes(t) {
			runOne(t, c)
		}
	})
}

// The list at the top of this file is the suite.
func TestContractListIsComplete(t *testing.T) {
	names, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	declared := map[string]bool{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`(?m)^func (TestContract\w+|BenchmarkCustomize)\(`).FindAllSubmatch(text, -1) {
			declared[string(match[1])] = true
		}
	}
	text, err := os.ReadFile("contract_test.go")
	require.NoError(t, err)
	listed := map[string]bool{"TestContractListIsComplete": true}
	for _, match := range regexp.MustCompile(`(?m)^//\t(\w+)`).FindAllSubmatch(text, -1) {
		listed[string(match[1])] = true
	}
	require.Equal(t, declared, listed)
}

// sameBytes compares answers, and shows them when they differ.
func sameBytes(t *testing.T, want, got []byte, why string) {
	t.Helper()
	if !bytes.Equal(want, got) {
		require.Equal(t, string(want), string(got), why)
	}
}
