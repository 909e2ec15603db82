package check

import (
	"cmp"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// leaseTimeline is all that crawlers were told of one lease, and did with it.
type leaseTimeline struct {
	id, domain string
	// grant is the first answer that had it.
	grant *history.Call
	// earliest is when it can have been granted at the soonest: under a key, when
	// the key was first used.
	earliest time.Duration
	// expires is the latest end that was acknowledged.
	expires time.Duration
	// released is when somebody first asked to end it, never if nobody did.
	released time.Duration
	release  *history.Call
	calls    []*history.Call // all about it, in the order of Answered
}

// heldUntil is until when it was held for certain.
func (l *leaseTimeline) heldUntil() time.Duration { return min(l.expires, l.released) }

func leaseKey(c *history.Call) string { return c.Domain + "\x00" + c.LeaseID }
func keyOf(c *history.Call) string    { return c.Domain + "\x00" + c.Key }

// granted: the answer has a lease.
func granted(c *history.Call) bool { return c.Kind == history.Acquire && c.Status == 201 }

// acknowledged: the answer says that the lease runs.
func acknowledged(c *history.Call) bool {
	return granted(c) || (c.Kind == history.Renew || c.Kind == history.Get) && c.Status == 200
}

// sent: discovery may have got it.
func sent(c *history.Call) bool { return c.Failure != history.Refused }

func (c *checker) indexCalls() {
	c.leases, c.keys, c.calls = map[string]*leaseTimeline{}, map[string][]*history.Call{}, map[string][]*history.Call{}
	order := make([]*history.Call, 0, len(c.Calls))
	for i := range c.Calls {
		order = append(order, &c.Calls[i])
	}
	slices.SortStableFunc(order, func(a, b *history.Call) int { return cmp.Compare(a.Answered, b.Answered) })
	for _, call := range order {
		if call.Kind == history.Acquire && call.Key != "" && sent(call) {
			c.keys[keyOf(call)] = append(c.keys[keyOf(call)], call)
		}
		if call.LeaseID != "" {
			c.calls[leaseKey(call)] = append(c.calls[leaseKey(call)], call)
		}
	}
	for key, calls := range c.calls {
		if life := c.lifeOf(calls); life != nil {
			c.leases[key] = life
		}
	}
}

func (c *checker) lifeOf(calls []*history.Call) *leaseTimeline {
	l := &leaseTimeline{id: calls[0].LeaseID, domain: calls[0].Domain, released: never, calls: calls}
	for _, call := range calls {
		if granted(call) && l.grant == nil {
			l.grant, l.earliest = call, call.Asked
		}
		if acknowledged(call) {
			l.expires = max(l.expires, call.ExpiresAt)
		}
		if call.Kind == history.Release && sent(call) && call.Asked < l.released {
			l.released, l.release = call.Asked, call
		}
	}
	if l.grant == nil {
		return nil
	}
	if l.grant.Key != "" {
		for _, try := range c.keys[keyOf(l.grant)] {
			l.earliest = min(l.earliest, try.Asked)
		}
	}
	return l
}

// sortedLeases returns the leases in the order in which they were granted at the
// soonest.
func (c *checker) sortedLeases() []*leaseTimeline {
	out := make([]*leaseTimeline, 0, len(c.leases))
	for _, l := range c.leases {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *leaseTimeline) int {
		return cmp.Or(cmp.Compare(a.earliest, b.earliest), cmp.Compare(a.id, b.id))
	})
	return out
}

// observerLag is by how much an observer may be behind, or ahead of what discovery
// knows, when nothing is broken.
const observerLag = 5 * time.Second

// changed finds what says that the lease's instance may not have been that of its
// Proxy for all of s: the Proxy was deleted, edited, or seen with another instance
// or none.
func (c *checker) changed(l *leaseTimeline, s window) (line int, yes bool) {
	for _, a := range c.acts[l.grant.Proxy] {
		moves := a.Verb != history.Edit || a.Replaces || (a.Wanted != nil && a.Wanted.Endpoint != "" && a.Wanted.Endpoint != l.grant.Endpoint)
		if !a.Failed && moves && s.meets(window{a.Asked, a.Answered}) {
			return a.Line, true
		}
	}
	wide := window{s.from - observerLag, s.to + observerLag}
	for _, o := range c.byName[l.grant.Proxy] {
		if o.At >= wide.from && o.At <= wide.to && (isGone(o) || o.Deleting || o.Endpoint != l.grant.Endpoint) {
			return o.Line, true
		}
	}
	return 0, false
}
