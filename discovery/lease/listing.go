package lease

import "time"

// Query says which running leases to list, and from where on. Fields that are ""
// ask for any.
type Query struct {
	// Proxy is "namespace/name".
	Proxy string
	// Holder, Session and Target as in the Request.
	Holder, Session, Target string
	// After is the Page.Next of the page before, 0 for the first.
	After uint64
	// Limit is how many leases a page may have, more than 0.
	Limit int
}

// Matches reports whether the query asks for the lease.
func (q Query) Matches(l Lease) bool {
	return (q.Proxy == "" || q.Proxy == l.Proxy) && (q.Holder == "" || q.Holder == l.Holder) &&
		(q.Session == "" || q.Session == l.Session) && (q.Target == "" || q.Target == l.Target)
}

// Page is a part of the leases that run, in the order in which they were granted.
type Page struct {
	// Leases of it. They may be fewer than the Limit, even none, although
	// others follow: a store looks at so many at once and no more, since
	// nothing is granted meanwhile.
	Leases []Listed
	// Next is where the page after this one starts, 0 when there is none.
	// Leases that run all the time are on exactly one page.
	Next uint64
}

// Listed is a lease that runs.
type Listed struct {
	Lease
	// Ended says why it leads nowhere all the same, "" when it does not.
	Ended EndReason
}

// Cooldown keeps a Proxy from being leased for a target, or for all ("").
type Cooldown struct {
	Target string
	Until  time.Time
}
