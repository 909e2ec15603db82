package lease

import (
	"slices"
	"time"
)

// Result is a crawler's result with a lease.
type Result string

const (
	// ResultOK: the target answered as it should.
	ResultOK Result = "ok"
	// ResultRateLimited: the target throttles this proxy.
	ResultRateLimited Result = "rate_limited"
	// ResultBanned: the target refuses this proxy.
	ResultBanned Result = "banned"
	// ResultCaptcha: the target takes the client behind this proxy for a robot.
	ResultCaptcha Result = "captcha"
	// ResultTargetTimeout: the proxy connected and the target timed out.
	ResultTargetTimeout Result = "target_timeout"
	// ResultProxyTimeout: connecting through the proxy timed out.
	ResultProxyTimeout Result = "proxy_timeout"
	// ResultConnectError: the proxy was unreachable or did not connect.
	ResultConnectError Result = "connect_error"
)

// Scope is the set of requests that a cooldown applies to.
type Scope string

const (
	// ScopeNone: there is no cooldown.
	ScopeNone Scope = "none"
	// ScopeTarget: requests with the report's target, else the lease's; when
	// neither names one, all requests.
	ScopeTarget Scope = "target"
	// ScopeAll: all requests.
	ScopeAll Scope = "all"
)

// Policy is what a report with some result does.
type Policy struct {
	// Result of the report.
	Result Result
	// Scope of the cooldown.
	Scope Scope
	// Divisor of the store's cooldown: this one lasts Cooldown / Divisor. 0 when
	// there is none.
	Divisor int
	// Why, for people.
	Why string
}

// Policies is the table of what reports do, in the order in which messages list the
// results. There is no escalation: a report prolongs an active cooldown, never
// shortens it, and counts from its own time.
var Policies = []Policy{
	{ResultOK, ScopeNone, 0, "nothing to do; an active cooldown goes on"},
	{ResultRateLimited, ScopeTarget, 1, "the target throttles this address"},
	{ResultBanned, ScopeTarget, 1, "the target refuses this address"},
	{ResultCaptcha, ScopeTarget, 1, "the target takes this address for a robot's"},
	{ResultTargetTimeout, ScopeNone, 0, "the target is slow, which is not the proxy's fault"},
	{ResultProxyTimeout, ScopeAll, 20, "time for a probe; one client's report alone does not make a proxy Unhealthy"},
	{ResultConnectError, ScopeAll, 20, "time for a probe; one client's report alone does not make a proxy Unhealthy"},
}

// Results lists all results.
func Results() []Result {
	var out []Result
	for _, p := range Policies {
		out = append(out, p.Result)
	}
	return out
}

// Known reports whether r is one of Results.
func (r Result) Known() bool { return slices.Contains(Results(), r) }

// Report is a crawler's feedback on a lease.
type Report struct {
	// Result is one of Results.
	Result Result
	// Target that the result is about, normalised. "" is the lease's target, and if
	// that is "" too, all targets: a client that leased for one site cannot block
	// the proxy for the others by leaving the target out.
	Target string
}

// Cooldown returns what a report on a lease for leaseTarget starts, given the
// store's cooldown: the target ("" for all) and the length. 0: nothing.
func (r Report) Cooldown(leaseTarget string, cooldown time.Duration) (target string, length time.Duration) {
	i := slices.IndexFunc(Policies, func(p Policy) bool { return p.Result == r.Result })
	if i < 0 || Policies[i].Scope == ScopeNone {
		return "", 0
	}
	length = cooldown / time.Duration(Policies[i].Divisor)
	switch {
	case Policies[i].Scope == ScopeAll:
		return "", length
	case r.Target != "":
		return r.Target, length
	}
	return leaseTarget, length
}
