package webhooks

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// The contract suite: what a hook must keep to so that Metacontroller can
// neither be tripped nor made to delete what it should keep. Each point is a
// test, run over every fixture, every recorded request and many generated ones.
//
// The answer (contract_test.go, answer_test.go)
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
// Sync after sync (contract_test.go)
//
//	TestContractSettlesUnderDynamicApply
//	TestContractSettlesUnderServerSideApply  a few calls, then the same answer for ever and no write
//	TestContractEditsSettle                  what an edit takes away is gone, and then the same
//	TestContractAPIServerKeepsOurChildren    the recorded defaults that those two rest on are still true
//
// Finalize and customize (contract_test.go)
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

// settleLimit is how many calls it may take until nothing changes any more. The
// longest way: an outdated Pod is left out, terminates, is gone, the new one is
// made, is seen.
const settleLimit = 6

func TestContractSettlesUnderDynamicApply(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) { settles(t, c, dynamicApply{}) }, "sync")
}

func TestContractSettlesUnderServerSideApply(t *testing.T) {
	types := childTypes()
	forEachCase(t, func(t *testing.T, c contractCase) { settles(t, c, newServerSideApply(types)) }, "sync")
}

// settles carries answers out until one takes no write. Then the answer is the
// same for ever. From scratch the third answer is the second, byte for byte.
func settles(t *testing.T, c contractCase, a applier) {
	t.Helper()
	h, s := c.hooks(c.now), newStore(t, c, a)
	scratch := len(s.children(podKind))+len(s.children(probeKind)) == 0 && c.cloud == nil
	limit := settleLimit
	if c.cloud != nil {
		limit += 3 // the adapter comes back, a VM is seen to be made, and to run
	}
	var answers [][]byte
	for {
		answers = append(answers, answerTo(t, h, "sync", s.body(t)))
		writes := s.carryOut(t, answers[len(answers)-1])
		if len(writes) == 0 {
			break
		}
		require.Less(t, len(answers), limit, "call %d still led to %v", len(answers), writes)
	}
	last := answers[len(answers)-1]
	sameBytes(t, last, answerTo(t, h, "sync", s.body(t)), "at rest")
	require.Empty(t, s.carryOut(t, last))
	if scratch && len(answers) > 2 {
		sameBytes(t, answers[1], answers[2], "the third answer is the second")
	}
}

// An edit that takes something away takes it out of the ProxyProbe as well, and
// nothing else moves.
func TestContractEditsSettle(t *testing.T) {
	for name, newApplier := range map[string]func() applier{
		"dynamic-apply":     func() applier { return dynamicApply{} },
		"server-side-apply": func() applier { return newServerSideApply(childTypes()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.External()
			p.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
			c := contractCase{hook: "sync", body: request{proxy: p}.body(t), now: proxytest.Noon()}
			h, s := c.hooks(c.now), newStore(t, c, newApplier())
			sync := func() []string { return s.carryOut(t, answerTo(t, h, "sync", s.body(t))) }
			require.Contains(t, sync(), "create ProxyProbe fra-1")
			probe := func() object { return s.children(probeKind)["crawl/fra-1"].(object) }
			require.Equal(t, "login", text(probe(), "spec", "credentialsRef", "name"))
			require.Empty(t, sync())

			setNested(t, probe(), object{"verdict": "Healthy", "instanceID": text(probe(), "spec", "instanceID")}, "status")
			spec := s.parent()["spec"].(object)
			delete(spec, "credentialsRef")
			setNested(t, spec, list{int64(204)}, "healthCheck", "expectedStatusCodes")
			require.True(t, slices.Contains(sync(), "update ProxyProbe fra-1"))
			require.Nil(t, at(probe(), "spec", "credentialsRef"))
			require.Equal(t, list{int64(204)}, at(probe(), "spec", "healthCheck", "expectedStatusCodes"))
			require.Equal(t, "Healthy", text(probe(), "status", "verdict"), "an edit keeps the verdict")
			require.Empty(t, sync())
		})
	}
}

// Metacontroller keeps the answer for 20 minutes under the Proxy's UID and
// generation, which labels, annotations and status do not change.
func TestContractCustomizeLooksAtTheSpecAlone(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		want := c.answer(t)
		for what, value := range map[string]any{
			"labels":            object{"crawl.example.com/cloud-init": "true"},
			"annotations":       object{"crawl.example.com/abandon": "true"},
			"generation":        int64(77),
			"resourceVersion":   "123456",
			"deletionTimestamp": "2026-11-29T12:00:00Z",
			"finalizers":        list{"other-owner.example/s"},
		} {
			c := c.edited(t, func(parent object) { setNested(t, parent, value, "metadata", what) })
			sameBytes(t, want, c.answer(t), what)
		}
		for _, status := range []object{{}, {"phase": "Ready", "instanceID": "x"}, {"phase": "Failed"}} {
			c := c.edited(t, func(parent object) { parent["status"] = status })
			sameBytes(t, want, c.answer(t), "status")
		}
		later := c.hooks(c.now.AddDate(1, 0, 0))
		sameBytes(t, want, answerTo(t, later, "customize", c.body), "a year later")
	}, "customize")
}

// edited is the request with another parent.
func (c contractCase) edited(t testing.TB, edit func(parent object)) contractCase {
	t.Helper()
	var body map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(c.body, &body))
	parent := decodedJSON(t, body["parent"]).(object)
	edit(parent)
	body["parent"] = mustJSON(t, parent)
	c.body, c.known = mustJSON(t, body), nil
	return c
}

// Rules combine only what may be combined, and request the one Secret by its name:
// every other rule makes Metacontroller send objects that the hooks do not need.
func TestContractCustomizeRules(t *testing.T) {
	asked := 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		parent := at(decodedJSON(t, c.body), "parent")
		for _, rule := range readV2[v2Customize](t, c.answer(t)).RelatedResources {
			asked++
			require.False(t, len(rule.Names) > 0 && rule.LabelSelector != nil, "names and labelSelector")
			require.False(t, len(rule.Names) > 0 && rule.NamespaceSelector != nil, "names and namespaceSelector")
			require.False(t, rule.Namespace != "" && rule.NamespaceSelector != nil, "namespace and namespaceSelector")
			require.Nil(t, rule.LabelSelector, "an empty one is every object there is")

			require.Equal(t, "v1 secrets", rule.APIVersion+" "+rule.Resource)
			require.Equal(t, text(parent, "metadata", "namespace"), rule.Namespace, "never another namespace's")
			require.Equal(t, []string{text(parent, "spec", "cloudInit", "secretRef", "name")}, rule.Names)
			require.Empty(t, validation.IsDNS1123Subdomain(rule.Names[0]))
		}
	}, "customize")
	require.Greater(t, asked, 20)
}

// finalizeLimit is how many calls it may take until nothing is left: the first
// leaves everything out, Pods terminate, all are gone. There is no deadline,
// since a Proxy waits for nothing but the deletion of its own children.
const finalizeLimit = 3

// finalizeLimit is that of the case: a VM's end also takes an adapter that is
// back, a Pod of an earlier provider that is gone, and a cloud that does it.
func (c contractCase) finalizeLimit() int {
	if c.cloud != nil {
		return finalizeLimit + 3
	}
	return finalizeLimit
}

// finalizing is the request, of whichever hook, as a finalize request.
func (c contractCase) finalizing(t testing.TB, a applier) (contractCase, *store) {
	t.Helper()
	s := newStore(t, c, a)
	s.request["finalizing"] = true
	c.hook, c.body, c.known = "finalize", s.body(t), nil
	return c, s
}

// From every state, also from the middle of a replacement or of trouble.
func TestContractFinalizeConverges(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		c, s := c.finalizing(t, dynamicApply{})
		h := c.hooks(c.now)
		for call := 1; ; call++ {
			answer := answerTo(t, h, "finalize", s.body(t))
			a := v2Of(t, answer)
			require.Empty(t, a.Children, "nothing is made or kept on the way out")
			if *a.Finalized {
				break
			}
			require.Positive(t, *a.ResyncAfterSeconds, "no event may come")
			s.carryOut(t, answer)
			require.Less(t, call, c.finalizeLimit(), "children left: %v", s.request["children"])
		}
	}, "sync", "finalize")
}

// Finalize is idempotent: the answer may be lost, or the removal of the finalizer
// fail, and a retry gets the same answer, from this process or another.
func TestContractFinalizeIsIdempotent(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		c, s := c.finalizing(t, dynamicApply{})
		h := c.hooks(c.now)
		for range c.finalizeLimit() {
			body := s.body(t)
			answer := answerTo(t, h, "finalize", body)
			sameBytes(t, answer, answerTo(t, h, "finalize", body), "called again")
			sameBytes(t, answer, answerTo(t, c.hooks(c.now), "finalize", body), "in another process")
			s.carryOut(t, answer)
		}
		last := answerTo(t, h, "finalize", s.body(t))
		require.True(t, *v2Of(t, last).Finalized)
		s.carryOut(t, last)
		sameBytes(t, last, answerTo(t, h, "finalize", s.body(t)), "with everything done")
	}, "sync", "finalize")
}

// mayHaveVM reports whether the case may still have a VM that is not abandoned.
func (c contractCase) mayHaveVM(t testing.TB) bool {
	t.Helper()
	return c.cloud != nil && c.cloud.holds() && !abandons(t, c.body)
}

func TestContractFinalizeWaitsForChildren(t *testing.T) {
	finalized := 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		c, s := c.finalizing(t, dynamicApply{})
		observed := len(s.children(podKind)) + len(s.children(probeKind))
		a := v2Of(t, c.answer(t))
		left := observed > 0 || c.mayHaveVM(t)
		require.Equal(t, !left, *a.Finalized, "children that terminate count, and a VM whose deletion is not confirmed")
		if *a.Finalized {
			finalized++
		}
	}, "sync", "finalize")
	require.Greater(t, finalized, 10)
}

func TestContractDecidesPurely(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		observe := func() *proxy.Observation {
			req, err := metacontroller.DecodeRequest(bytes.NewReader(c.body), podKind, probeKind)
			require.NoError(t, err)
			h := c.hooks(c.now)
			h.adapter.api = nil
			o, err := h.observe(t.Context(), req)
			require.NoError(t, err)
			return o
		}
		o := observe()
		first, err := proxy.Decide(o)
		require.NoError(t, err)
		_, err = fixtureHooks().answer(o, &first)
		require.NoError(t, err)
		require.Equal(t, observe(), o, "deciding changes nothing")
		again, err := proxy.Decide(o)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}, "sync", "finalize")
}

// A hook blocks one of Metacontroller's few workers. Its answer depends on the
// request and on the Adapter's replies, whose requests are bounded: the packages
// have no other client, and no clock but the injected one.
func TestContractCallsOnlyTheAdapter(t *testing.T) {
	files := forEachFile(t, "*.go", func(name string, file *ast.File, imports []string) {
		for _, path := range imports {
			require.NotContains(t, []string{"net", "net/rpc", "os/exec", "database/sql", "math/rand", "math/rand/v2", "crypto/rand"}, path, name)
			require.False(t, strings.HasPrefix(path, "k8s.io/client-go"), "%s imports %s", name, path)
		}
		requireNoCalls(t, name, file)
	})
	require.Greater(t, files, 5)

	const api = "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/"
	files = forEachFile(t, "proxy/*.go", func(name string, file *ast.File, imports []string) {
		for _, path := range imports {
			pure := slices.Contains([]string{"cmp", "errors", "fmt", "net/netip", "regexp", "slices", "strings", "time", "k8s.io/api/core/v1"}, path) ||
				strings.HasPrefix(path, "k8s.io/apimachinery/") || strings.HasPrefix(path, api)
			require.True(t, pure, "%s imports %s", name, path)
		}
		requireNoCalls(t, name, file)
	})
	require.Greater(t, files, 5)
}

// forEachFile calls check with each file that is no test, and returns their number.
func forEachFile(t *testing.T, pattern string, check func(name string, file *ast.File, imports []string)) (files int) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		var imports []string
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			imports = append(imports, path)
		}
		check(name, file, imports)
	}
	return files
}

func requireNoCalls(t *testing.T, name string, file *ast.File) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			require.NotContains(t, forbidden(), selector(s), name)
		}
		return true
	})
}

func forbidden() []string {
	calls := []string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After"}
	for _, name := range []string{"Get", "Post", "PostForm", "Head", "Client", "DefaultClient", "NewRequest", "NewRequestWithContext", "Transport", "DefaultTransport"} {
		calls = append(calls, "http."+name)
	}
	return calls
}

func selector(s *ast.SelectorExpr) string {
	if x, ok := s.X.(*ast.Ident); ok {
		return x.Name + "." + s.Sel.Name
	}
	return ""
}

func TestContractStatusFitsTheCRD(t *testing.T) {
	forEachCase(t, statusFitsTheCRD(t), "sync", "finalize")
}

func statusFitsTheCRD(tb testing.TB) func(t *testing.T, c contractCase) {
	tb.Helper()
	status, probe := proxySchema(tb).Properties["status"], probeSchema(tb)
	return func(t *testing.T, c contractCase) {
		a := v2Of(t, c.answer(t))
		require.Empty(t, status.check("status", decoded(t, a.Status)))
		for _, child := range a.Children {
			if child["kind"] == "ProxyProbe" {
				require.Empty(t, probe.check("", decoded(t, child)))
			}
		}
	}
}

// withStatus is the request with that status on the parent, as Metacontroller
// writes it: replaced whole.
func (c contractCase) withStatus(t testing.TB, status any) contractCase {
	t.Helper()
	return c.edited(t, func(parent object) { parent["status"] = status })
}

// Once the status is written, the clock changes nothing: neither an earlier time
// nor one years later. The exceptions are the timeout of the instance, and then of
// its ProxyProbe, and the backoff of a Pod that ended. They are crossed once.
func TestContractNoWallClockInStatus(t *testing.T) {
	crossings := 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		c = c.withStatus(t, v2Of(t, c.answer(t)).Status)
		var before []byte
		crossed := 0
		for _, shift := range []time.Duration{-20000 * time.Hour, -time.Second, 0, time.Nanosecond, time.Minute, 11 * time.Minute, time.Hour, 20000 * time.Hour} {
			got := answerTo(t, c.hooks(c.now.Add(shift)), c.hook, c.body)
			if before != nil && string(before) != string(got) {
				crossed++
				requireDeadlineCrossed(t, v2Of(t, before), v2Of(t, got))
			}
			before = got
		}
		require.LessOrEqual(t, crossed, 1)
		crossings += crossed
	}, "sync", "finalize")
	require.Greater(t, crossings, 20, "the cases hold some that wait")
}

// requireDeadlineCrossed wants the two answers to differ in that an instance, or
// its ProxyProbe, should have been there by now, or that an ended Pod is not kept any
// longer.
func requireDeadlineCrossed(t *testing.T, before, after v2Answer) {
	t.Helper()
	if before.reason() != after.reason() {
		require.Equal(t, v1alpha1.ReasonProvisioning, before.reason())
		require.Equal(t, v1alpha1.ReasonProvisioningTimeout, after.reason())
		return
	}
	if r := before.reason(); r == v1alpha1.ReasonInstanceFailing || r == v1alpha1.ReasonInstanceTerminated {
		require.Equal(t, typedStatus(t, before), typedStatus(t, after))
		require.Len(t, before.Children, 1, "the Pod")
		require.Empty(t, after.Children)
		return
	}
	health := func(a v2Answer) string {
		return meta.FindStatusCondition(typedStatus(t, a).Conditions, v1alpha1.ConditionHealthy).Message
	}
	require.Contains(t, health(before), "waiting for the prober's first verdict")
	require.Contains(t, health(after), "the prober does not check it")
}

// However often a hook is called.
func TestContractNoCountersInStatus(t *testing.T) {
	forEachCase(t, noCountersInStatus, "sync", "finalize")
}

func noCountersInStatus(t *testing.T, c contractCase) {
	t.Helper()
	c = c.withStatus(t, v2Of(t, c.answer(t)).Status)
	h := c.hooks(c.now)
	first := answerTo(t, h, c.hook, c.body)
	for range 2 {
		sameBytes(t, first, answerTo(t, h, c.hook, c.body), "called again")
	}
}

func TestContractResyncsWhilePending(t *testing.T) {
	forEachCase(t, resyncsWhilePending, "sync", "finalize")
}

func resyncsWhilePending(t *testing.T, c contractCase) {
	t.Helper()
	a := v2Of(t, c.answer(t))
	pending := a.phase() != string(v1alpha1.PhaseReady) && a.phase() != string(v1alpha1.PhaseUnhealthy)
	living := livingIn(t, c.body)
	for _, child := range a.listed() {
		pending = pending || !slices.Contains(living, child)
	}
	if pending && !*a.Finalized {
		require.Positive(t, *a.ResyncAfterSeconds, a.phase())
	}
	require.False(t, *a.Finalized && *a.ResyncAfterSeconds > 0, "nothing is left to look at")
}

func TestContractStatusMakesSense(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		a := v2Of(t, c.answer(t))
		s := typedStatus(t, a)
		require.EqualValues(t, at(decodedJSON(t, c.body), "parent", "metadata", "generation"), s.ObservedGeneration)
		require.Len(t, s.Conditions, 2)
		provisioned := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionProvisioned)
		require.Equal(t, provisioned, s.IP != "", "an address exactly when there is something to use")
		require.Equal(t, provisioned, s.Port != 0)
		switch s.Phase {
		case v1alpha1.PhaseReady:
			require.True(t, provisioned && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionHealthy))
			require.NotEmpty(t, s.InstanceID)
		case v1alpha1.PhaseFailed:
			require.False(t, provisioned, "Failed only without an instance")
		}
		require.Equal(t, c.hook == "finalize", s.Phase == v1alpha1.PhaseDeleting)
	}, "sync", "finalize")
}

func typedStatus(t testing.TB, a v2Answer) v1alpha1.ProxyStatus {
	t.Helper()
	return readV2[v1alpha1.ProxyStatus](t, mustJSON(t, a.Status))
}

// A VM is no child, so no answer ends it; requests to the adapter do. Such a request
// names the instance whose replacement is in the status of this answer or of the
// previous one. While the adapter gives no state, the status keeps the instance.
func TestContractUnknownKeepsVMs(t *testing.T) {
	replaced, silent := 0, 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		if c.cloud == nil {
			return
		}
		before := text(decodedJSON(t, c.body), "parent", "status", "instanceID")
		a := v2Of(t, c.answer(t))
		for _, kill := range c.cloud.kills() {
			require.Equal(t, "PUT", kill.Method, "a sync deletes nothing")
			decided := a.reason() == v1alpha1.ReasonReplacing && kill.Put.Replace == text(a.Status, "instanceID")
			begun := kill.Put.Replace == before && reasonBefore(t, c.body) == v1alpha1.ReasonReplacing
			require.True(t, decided || begun, "replaces %s", kill.Put.Replace)
			replaced++
		}
		if len(c.cloud.calls) == 0 || c.cloud.err == nil {
			return
		}
		silent++
		status := at(decodedJSON(t, c.body), "parent", "status")
		for _, field := range []string{"ip", "providerID", "instanceID"} {
			require.Equal(t, text(status, field), text(a.Status, field), field)
		}
		require.True(t, before == "" || a.reason() != v1alpha1.ReasonCloudAdapterUnavailable, "that is for Proxies without an instance")
		if !slices.Contains(a.listed(), "ProxyProbe fra-1") {
			require.NotContains(t, livingIn(t, c.body), "ProxyProbe fra-1", "nor does the ProxyProbe go")
		}
	}, "sync")
	require.Greater(t, replaced, 5)
	require.Greater(t, silent, 5)
}

// reasonBefore is the reason of the Provisioned condition in a request.
func reasonBefore(t testing.TB, body []byte) string {
	t.Helper()
	conditions, _ := at(decodedJSON(t, body), "parent", "status", "conditions").(list)
	for _, c := range conditions {
		if text(c, "type") == v1alpha1.ConditionProvisioned {
			return text(c, "reason")
		}
	}
	return ""
}
