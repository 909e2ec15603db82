package lease

import (
	"context"
	"sync"
	"time"
)

// Store is the authority on leases and cooldowns. Package storetest has the tests
// that every implementation must pass.
//
// In stores that outlive the process, what a call returned still holds after a
// crash. Beside the errors named below, calls return context errors, after which it
// is unknown whether anything changed, and errors that unwrap to ErrUnavailable.
type Store interface {
	// Offer applies a change of the fleet. The first call has the whole fleet; until
	// then nothing is granted. Offer waits for nothing outside the process.
	Offer(offers Offers)
	// Acquire chooses among the leasable proxies that match and grants a lease, in
	// one atomic step. Compare orders the proxies that have a free slot and no
	// cooldown. The errors are *NoMatchError when there is no such proxy,
	// ErrKeyReused, and *LimitError when the holder can have no other session.
	Acquire(ctx context.Context, req Request) (Lease, error)
	// Renew extends a lease to ttl from now; it never shortens a lease. The errors
	// are ErrUnknown, and *EndedError when the lease has expired or its instance is
	// gone.
	Renew(ctx context.Context, id string, ttl time.Duration) (Lease, error)
	// Get returns a usable lease, or the errors of Renew.
	Get(ctx context.Context, id string) (Lease, error)
	// Release ends a lease. It is idempotent: unknown ids are no error.
	Release(ctx context.Context, id string) error
	// Report starts the cooldown that Policies has for the result. The errors are
	// ErrUnknown, and *LimitError when no other cooldown can be kept.
	Report(ctx context.Context, id string, rep Report) error
	// Usage counts what is active now.
	Usage(ctx context.Context) (Usage, error)
	// List returns a page of the active leases, in the order of their grants.
	List(ctx context.Context, q Query) (Page, error)
	// Cooldowns lists the cooldowns of a Proxy, by target.
	Cooldowns(ctx context.Context, proxyUID string) ([]Cooldown, error)
	// EndCooldowns ends a Proxy's cooldown for one target, or all of its cooldowns
	// when the target is "", and returns how many it ended.
	EndCooldowns(ctx context.Context, proxyUID, target string) (ended int, err error)
	// Freed returns a channel that is closed when a retry of a refused Acquire may
	// succeed before its NoMatchError.FreeAt: a lease was released, a cooldown was
	// ended, or the fleet changed. Expiry does not close it.
	Freed() <-chan struct{}
	// Changed returns a channel that is closed at the next change of
	// Usage.Revision. Expiry may be noticed up to a second late.
	Changed() <-chan struct{}
	// Ready returns nil when leases can be granted and kept, or the reason why not.
	Ready() error
}

// Query selects active leases. An empty field matches any value.
type Query struct {
	// Proxy is "namespace/name".
	Proxy string
	// Holder, Session and Target as in the Request.
	Holder, Session, Target string
	// After is the Page.Next of the page before, 0 for the first page.
	After uint64
	// Limit is the largest number of leases of a page, more than 0.
	Limit int
}

// Matches reports whether the query selects the lease.
func (q Query) Matches(l Lease) bool {
	return (q.Proxy == "" || q.Proxy == l.Proxy) && (q.Holder == "" || q.Holder == l.Holder) &&
		(q.Session == "" || q.Session == l.Session) && (q.Target == "" || q.Target == l.Target)
}

// Page is a part of the active leases, in the order of their grants.
type Page struct {
	// Leases of the page. There may be fewer than the Limit, or none, although
	// others follow: a store bounds how many leases one call inspects, since it
	// grants none meanwhile.
	Leases []Lease
	// Next is the Query.After of the next page, 0 on the last one. A lease that is
	// active all the time is on exactly one page.
	Next uint64
}

// Cooldown keeps a Proxy from being leased for a target, or for all ("").
type Cooldown struct {
	Target string
	Until  time.Time
}

// Signal is a broadcast to any number of waiting goroutines. The zero value is
// ready to use.
type Signal struct {
	mu sync.Mutex
	c  chan struct{} // nil while no goroutine waits
}

// C returns a channel that is closed at the next Broadcast. To miss no event, take
// the channel first, then read the state, then wait.
func (s *Signal) C() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

// Broadcast wakes all waiting goroutines.
func (s *Signal) Broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
