// Package check compares the history of a fault campaign with what the system
// promises. It is pure: the same history gives the same result, on any machine.
//
// It reports only what is certainly wrong. What the history leaves uncertain, such as
// whether a request without a response was handled, counts in the system's favour.
// What is excused (a machine that was starved of CPU, what Metacontroller cannot
// observe) is listed too. Each promise counts its checks: a promise that was never
// checked was not kept.
package check

import (
	"cmp"
	"fmt"
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

var promises = []Promise{
	Capacity, LeaseKept, Successor, Fencing, NotDoubled, NoOrphans, NotDeleted, Finalizers, NotStuck,
	Converged, StatusTrue, NoFlips, DeadProxy, Refusals, Resources,
}

// Promises returns all promises in the order of reports.
func Promises() []Promise { return slices.Clone(promises) }

// Violation of a promise.
type Violation struct {
	Promise  Promise
	At       time.Duration
	Subjects []string // Proxies, leases, processes
	Text     string
	Lines    []int  // lines of the history that prove it
	Excuse   string // why it does not count, "" when it counts
}

// String is one line.
func (v Violation) String() string {
	text := fmt.Sprintf("%9.3fs %s: %s: %s (lines %s)", v.At.Seconds(), v.Promise, strings.Join(v.Subjects, ", "), v.Text,
		strings.Trim(fmt.Sprint(v.Lines), "[]"))
	if v.Excuse != "" {
		text += "; excused: " + v.Excuse
	}
	return text
}

// Result of the checks of a history.
type Result struct {
	Violations, Excused []Violation     // that count, and those that are excused, in the order of At
	Checks              map[Promise]int // counts the checks of each promise
}

// Unchecked are the promises that the history gave no occasion to check.
func (r *Result) Unchecked() []Promise {
	return slices.DeleteFunc(Promises(), func(p Promise) bool { return r.Checks[p] > 0 })
}

// Table is the result by promise.
func (r *Result) Table() string {
	count := func(all []Violation, p Promise) (n int) {
		for _, v := range all {
			if v.Promise == p {
				n++
			}
		}
		return n
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-68s %8s %9s %8s\n", "promise", "checks", "broken", "excused")
	for _, p := range promises {
		fmt.Fprintf(&b, "%-68s %8d %9d %8d\n", p, r.Checks[p], count(r.Violations, p), count(r.Excused, p))
	}
	return b.String()
}

// Run checks a history against all promises.
func Run(h *history.History) *Result {
	c := newChecker(h)
	for _, check := range []func(*checker){
		capacity, leasesKept, fencing, duplicates, orphans, deletions, finalizers, stuck,
		converged, statusTrue, flips, deadProxies, refusals, resources,
	} {
		check(c)
	}
	slices.SortStableFunc(c.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	r := &Result{Checks: c.checks}
	for _, v := range c.found {
		if v.Excuse == "" {
			r.Violations = append(r.Violations, v)
		} else {
			r.Excused = append(r.Excused, v)
		}
	}
	return r
}

// checker is a history with indexes, and the violations found so far.
type checker struct {
	*history.History
	checks map[Promise]int
	found  []Violation

	proxies    map[string]*proxyTimeline   // by UID
	byName     map[string][]history.Object // Proxies' records, by namespace/name
	acts       map[string][]history.Act    // by namespace/name
	truths     map[string][]history.Truth  // by endpoint
	leases     []*leaseTimeline            // by the earliest moment of the grant
	pods       map[string][]history.Object // Pods' records, by Pod UID
	vms        map[string]*vmTimeline      // by VM id
	probes     map[string]history.Object   // ProxyProbes at the end, by Proxy UID
	keys       map[string][]*history.Call  // acquires, by Idempotency-Key
	onInstance map[string][]*leaseTimeline // by instanceKey

	stages map[history.StageName]window
}

func (c *checker) checked(p Promise) { c.checks[p]++ }

// report adds a violation and returns it, so that the caller can excuse it.
func (c *checker) report(p Promise, at time.Duration, subjects []string, lines []int, format string, args ...any) *Violation {
	c.found = append(c.found, Violation{Promise: p, At: at, Subjects: subjects, Lines: lines, Text: fmt.Sprintf(format, args...)})
	return &c.found[len(c.found)-1]
}

// reportLease adds a violation about a lease and other leases.
func (c *checker) reportLease(p Promise, at time.Duration, l *leaseTimeline, others []string, lines []int, format string, args ...any) *Violation {
	return c.report(p, at, append([]string{l.grant.Proxy, l.domain, l.id}, others...), lines, format, args...)
}
