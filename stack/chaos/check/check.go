package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// Promise is one that the system makes.
type Promise string

// Promises.
const (
	Capacity   Promise = "no lease above maxLeases"
	LeaseKept  Promise = "no acknowledged lease lost"
	Successor  Promise = "the end of an expired lease leaves its successor alone"
	Fencing    Promise = "fencing tokens are used once, and grow"
	NotDoubled Promise = "no instance doubled"
	NoOrphans  Promise = "no instance orphaned"
	NotDeleted Promise = "no instance deleted whose Proxy lives and did not change"
	Finalizers Promise = "no finalizer removed before the instance is gone"
	NotStuck   Promise = "nothing stuck"
	Converged  Promise = "every Proxy converged to its spec"
	StatusTrue Promise = "status true"
	NoFlips    Promise = "no health flip of a proxy that works"
	DeadProxy  Promise = "no lease on a proxy known to be dead"
	Refusals   Promise = "every refusal has a reason and a Retry-After"
	Resources  Promise = "memory, goroutines, descriptors and series back to their baseline"
)

// Promises in the order of reports.
func Promises() []Promise {
	return []Promise{
		Capacity, LeaseKept, Successor, Fencing, NotDoubled, NoOrphans, NotDeleted, Finalizers, NotStuck,
		Converged, StatusTrue, NoFlips, DeadProxy, Refusals, Resources,
	}
}

// Violation of a promise.
type Violation struct {
	Promise Promise
	// At is when it showed.
	At time.Duration
	// Subjects are what it is about: a Proxy, a lease, a process.
	Subjects []string
	// What happened, for people.
	What string
	// Lines of the history that prove it.
	Lines []int
	// Excuse says why it is not held against the system, "" when it is.
	Excuse string
}

// String is one line.
func (v Violation) String() string {
	text := fmt.Sprintf("%9.3fs %s: %s: %s (lines %s)", v.At.Seconds(), v.Promise, strings.Join(v.Subjects, ", "), v.What,
		strings.Trim(fmt.Sprint(v.Lines), "[]"))
	if v.Excuse != "" {
		text += "; excused: " + v.Excuse
	}
	return text
}

// Verdict on a history.
type Result struct {
	// Violations that count, and those that are excused, in the order of At.
	Violations, Excused []Violation
	// Checks counts what each promise was held against.
	Checks map[Promise]int
}

// Unchecked are the promises that nothing was held against: they are not kept, they
// were not tried.
func (v *Result) Unchecked() []Promise {
	return slices.DeleteFunc(Promises(), func(p Promise) bool { return v.Checks[p] > 0 })
}

// Table is the verdict by promise, for people.
func (v *Result) Table() string {
	broken, excused := map[Promise]int{}, map[Promise]int{}
	for _, x := range v.Violations {
		broken[x.Promise]++
	}
	for _, x := range v.Excused {
		excused[x.Promise]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-68s %8s %9s %8s\n", "promise", "facts", "violated", "excused")
	for _, p := range Promises() {
		fmt.Fprintf(&b, "%-68s %8d %9d %8d\n", p, v.Checks[p], broken[p], excused[p])
	}
	return b.String()
}

// Judge holds a history against all promises.
func Run(h *history.History) *Result {
	c := &checker{History: h, checks: map[Promise]int{}}
	c.index()
	for _, check := range []func(*checker){
		capacity, kept, fencing, doubled, orphans, deletions, finalizers, stuck,
		converged, statusTrue, flips, deadProxies, refusals, resources,
	} {
		check(c)
	}
	v := &Result{Checks: maps.Clone(c.checks)}
	slices.SortStableFunc(c.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	for _, x := range c.found {
		if x.Excuse == "" {
			v.Violations = append(v.Violations, x)
		} else {
			v.Excused = append(v.Excused, x)
		}
	}
	return v
}

// checker is a history with what is looked up in it, and what was found.
type checker struct {
	*history.History
	checks map[Promise]int
	found  []Violation

	proxies    map[string]*proxyTimeline   // by UID
	byName     map[string][]history.Object // Proxies' records, by namespace/name
	acts       map[string][]history.Act    // by namespace/name
	truths     map[string][]history.Truth  // by endpoint
	leases     map[string]*leaseTimeline   // by domain and lease ID
	pods       map[string][]history.Object // Pods' records, by Pod UID
	vms        map[string]*vmTimeline      // by VM id
	probes     map[string]history.Object   // ProxyProbes at the end, by Proxy UID
	calls      map[string][]*history.Call  // by lease
	keys       map[string][]*history.Call  // acquires, by key
	onInstance map[string][]*leaseTimeline // by domain, Proxy and endpoint

	begins map[history.StageName]window // stages
}

func (c *checker) checked(p Promise) { c.checks[p]++ }

func (c *checker) report(v Violation) { c.found = append(c.found, v) }
