package lease

import (
	"cmp"
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
	// ResultConnectError: the proxy was unreachable, or it failed by itself.
	ResultConnectError Result = "connect_error"
	// ResultTargetUnreachable: the proxy works, and could not or would not connect to
	// the target.
	ResultTargetUnreachable Result = "target_unreachable"
)

// Scope is the set of requests that a cooldown applies to.
type Scope string

const (
	// ScopeNone: there is no cooldown.
	ScopeNone Scope = "none"
	// ScopeTarget: requests with the report's target, else the lease's; when
	// neither names one, all requests.
	ScopeTarget Scope = "target"
	// ScopeNamedTarget: as ScopeTarget; when neither names a target there is no
	// cooldown.
	ScopeNamedTarget Scope = "named target"
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
	// RetryAfter: the report may name the length itself.
	RetryAfter bool
	// Why, for people.
	Why string
}

// MaxRetryAfter is the longest cooldown that a report can name.
const MaxRetryAfter = time.Hour

// Policies is the table of what reports do, in the order in which messages list the
// results. There is no escalation: a report prolongs an active cooldown, never
// shortens it, and counts from its own time.
var Policies = []Policy{
	{ResultOK, ScopeNone, 0, false, "nothing to do; an active cooldown goes on"},
	{ResultRateLimited, ScopeTarget, 1, true, "the target throttles this address"},
	{ResultBanned, ScopeTarget, 1, true, "the target refuses this address"},
	{ResultCaptcha, ScopeTarget, 1, false, "the target takes this address for a robot's"},
	{ResultTargetTimeout, ScopeNone, 0, false, "the target is slow, which is not the proxy's fault"},
	{ResultTargetUnreachable, ScopeNamedTarget, 20, false, "the proxy works, and cannot or may not connect to this target"},
	{ResultProxyTimeout, ScopeAll, 20, false, "time for a probe; one client's report alone does not make a proxy Unhealthy"},
	{ResultConnectError, ScopeAll, 20, false, "time for a probe; one client's report alone does not make a proxy Unhealthy"},
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

// TakesRetryAfter reports whether a report with this result may have a RetryAfter.
func (r Result) TakesRetryAfter() bool { return r.policy().RetryAfter }

// policy of a result; that of an unknown one starts no cooldown.
func (r Result) policy() Policy {
	if i := slices.IndexFunc(Policies, func(p Policy) bool { return p.Result == r }); i >= 0 {
		return Policies[i]
	}
	return Policy{Scope: ScopeNone}
}

// Report is a crawler's feedback on a lease.
type Report struct {
	// Result is one of Results.
	Result Result
	// Target that the result is about, normalised. "" is the lease's target, and if
	// that is "" too, all targets: a client that leased for one site cannot block
	// the proxy for the others by leaving the target out.
	Target string
	// RetryAfter is the length of the cooldown in place of the policy's, 0 for that. A
	// target sends it as Retry-After. MaxRetryAfter bounds it, and only some results
	// take it.
	RetryAfter time.Duration
}

// Cooldown returns what a report on a lease for leaseTarget starts, given the
// store's cooldown: the target ("" for all) and the length. 0: nothing. A store
// without cooldowns has none for RetryAfter either.
func (r Report) Cooldown(leaseTarget string, cooldown time.Duration) (target string, length time.Duration) {
	p := r.Result.policy()
	target = cmp.Or(r.Target, leaseTarget)
	switch {
	case p.Scope == ScopeNone || cooldown <= 0 || p.Scope == ScopeNamedTarget && target == "":
		return "", 0
	case p.Scope == ScopeAll:
		target = ""
	}
	if p.RetryAfter && r.RetryAfter > 0 {
		return target, min(r.RetryAfter, MaxRetryAfter)
	}
	return target, cooldown / time.Duration(p.Divisor)
}
