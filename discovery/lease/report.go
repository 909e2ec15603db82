package lease

import "slices"

// Result is how a crawler fared with a lease.
type Result string

const (
	// ResultOK: the target answered as it should. Changes nothing.
	ResultOK Result = "ok"
	// ResultRateLimited: the target asks this proxy to slow down.
	ResultRateLimited Result = "rate_limited"
	// ResultBanned: the target refuses this proxy.
	ResultBanned Result = "banned"
)

// Results lists all results, in the order in which messages name them.
func Results() []Result { return []Result{ResultOK, ResultRateLimited, ResultBanned} }

// Known reports whether r is one of Results.
func (r Result) Known() bool { return slices.Contains(Results(), r) }

// Cools reports whether r starts a cooldown. rate_limited and banned share one
// window: what differs is what people read, not what the store does.
func (r Result) Cools() bool { return r == ResultRateLimited || r == ResultBanned }

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
