package lease

import (
	"slices"
	"time"
)

// Result is how a crawler fared with a lease.
type Result string

const (
	// ResultOK: the target answered as it should.
	ResultOK Result = "ok"
	// ResultRateLimited: the target asks this proxy to slow down.
	ResultRateLimited Result = "rate_limited"
	// ResultBanned: the target refuses this proxy.
	ResultBanned Result = "banned"
	// ResultCaptcha: the target wants a human behind this proxy.
	ResultCaptcha Result = "captcha"
	// ResultTargetTimeout: the proxy connected and the target was too slow.
	ResultTargetTimeout Result = "target_timeout"
	// ResultProxyTimeout: the proxy was too slow to connect.
	ResultProxyTimeout Result = "proxy_timeout"
	// ResultConnectError: the proxy could not be reached or did not connect.
	ResultConnectError Result = "connect_error"
)

// Scope says for whom a cooldown counts.
type Scope string

const (
	// ScopeNone: there is no cooldown.
	ScopeNone Scope = "none"
	// ScopeTarget: for requests with the report's target, else the lease's;
	// when neither names one, for all.
	ScopeTarget Scope = "target"
	// ScopeAll: for all requests.
	ScopeAll Scope = "all"
)

// Policy is what a report with some result does.
type Policy struct {
	// Result that it is about.
	Result Result
	// Scope of the cooldown.
	Scope Scope
	// Share of the store's cooldown window that the cooldown takes, as 1 part
	// in so many. 0 when there is none.
	Share int
	// Why, in words for people.
	Why string
}

// Policies is the one table of what reports do, in the order in which messages
// name the results. There is no escalation: each report that cools prolongs a
// cooldown that is under way, never shortens it, and counts from its own time.
func Policies() []Policy {
	return []Policy{
		{ResultOK, ScopeNone, 0, "nothing to do; a cooldown that is under way goes on"},
		{ResultRateLimited, ScopeTarget, 1, "the target asks this address to slow down"},
		{ResultBanned, ScopeTarget, 1, "the target refuses this address"},
		{ResultCaptcha, ScopeTarget, 1, "the target takes this address for a robot's"},
		{ResultTargetTimeout, ScopeNone, 0, "the target is slow, which is not the proxy's fault"},
		{ResultProxyTimeout, ScopeAll, 20, "time for a probe to find out; one client's word alone does not condemn a proxy"},
		{ResultConnectError, ScopeAll, 20, "time for a probe to find out; one client's word alone does not condemn a proxy"},
	}
}

// Results lists all results.
func Results() []Result {
	var out []Result
	for _, p := range Policies() {
		out = append(out, p.Result)
	}
	return out
}

// Known reports whether r is one of Results.
func (r Result) Known() bool { return slices.Contains(Results(), r) }

// Report is a crawler's word on a lease.
type Report struct {
	// Result is one of Results.
	Result Result
	// Target that the result is about, normalised. "" stands for the lease's
	// target, and if it has none, for all targets: a client that leased for
	// one site cannot spoil the proxy for the others by leaving the target
	// out.
	Target string
}

// Cooldown is what a report on a lease for leaseTarget starts, given the
// store's window: for which target ("" for all) and for how long. 0: nothing.
func (r Report) Cooldown(leaseTarget string, window time.Duration) (target string, length time.Duration) {
	i := slices.IndexFunc(Policies(), func(p Policy) bool { return p.Result == r.Result })
	if i < 0 {
		return "", 0
	}
	p := Policies()[i]
	switch {
	case p.Scope == ScopeNone:
		return "", 0
	case p.Scope == ScopeAll:
		return "", window / time.Duration(p.Share)
	case r.Target != "":
		return r.Target, window / time.Duration(p.Share)
	}
	return leaseTarget, window / time.Duration(p.Share)
}
