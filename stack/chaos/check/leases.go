package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// leaseTimeline is all calls about one lease.
type leaseTimeline struct {
	id, domain string
	grant      *history.Call   // the first response with it
	earliest   time.Duration   // the earliest moment of the grant: with a key, its first use
	expires    time.Duration   // the latest acknowledged end
	released   time.Duration   // when its release was first requested, never without one
	calls      []*history.Call // in the order of Answered
}

// heldUntil is until when it was certainly held.
func (l *leaseTimeline) heldUntil() time.Duration { return min(l.expires, l.released) }

// instanceKey is the same for all leases of one domain on one instance.
func (l *leaseTimeline) instanceKey() string {
	return l.domain + "\x00" + l.grant.Proxy + "\x00" + l.grant.Endpoint
}

func leaseKey(c *history.Call) string { return c.Domain + "\x00" + c.LeaseID }
func keyOf(c *history.Call) string    { return c.Domain + "\x00" + c.Key }

// granted reports whether the response grants a lease.
func granted(c *history.Call) bool { return c.Kind == history.Acquire && c.Status == 201 }

// acknowledged reports whether the response confirms that the lease runs.
func acknowledged(c *history.Call) bool {
	return granted(c) || (c.Kind == history.Renew || c.Kind == history.Get) && c.Status == 200
}

// sent reports whether discovery may have received the request.
func sent(c *history.Call) bool { return c.Failure != history.Refused }

func (c *checker) indexLeases() {
	order := make([]*history.Call, 0, len(c.Calls))
	for i := range c.Calls {
		order = append(order, &c.Calls[i])
	}
	slices.SortStableFunc(order, func(a, b *history.Call) int { return cmp.Compare(a.Answered, b.Answered) })
	byLease := map[string][]*history.Call{}
	for _, call := range order {
		if call.Kind == history.Acquire && call.Key != "" && sent(call) {
			c.keys[keyOf(call)] = append(c.keys[keyOf(call)], call)
		}
		if call.LeaseID != "" {
			byLease[leaseKey(call)] = append(byLease[leaseKey(call)], call)
		}
	}
	for _, calls := range byLease {
		if l := c.leaseOf(calls); l != nil {
			c.leases = append(c.leases, l)
		}
	}
	slices.SortFunc(c.leases, func(a, b *leaseTimeline) int {
		return cmp.Or(cmp.Compare(a.earliest, b.earliest), cmp.Compare(a.id, b.id))
	})
	for _, l := range c.leases {
		c.onInstance[l.instanceKey()] = append(c.onInstance[l.instanceKey()], l)
	}
}

// leaseOf returns nil when no response granted the lease.
func (c *checker) leaseOf(calls []*history.Call) *leaseTimeline {
	l := &leaseTimeline{id: calls[0].LeaseID, domain: calls[0].Domain, released: never, calls: calls}
	for _, call := range calls {
		if granted(call) && l.grant == nil {
			l.grant, l.earliest = call, call.Asked
		}
		if acknowledged(call) {
			l.expires = max(l.expires, call.ExpiresAt)
		}
		if call.Kind == history.Release && sent(call) {
			l.released = min(l.released, call.Asked)
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

// moved reports whether the lease's instance may have been another one than the Proxy's
// at some moment of w: the Proxy was deleted, edited, or observed with another instance
// or none.
func (c *checker) moved(l *leaseTimeline, w window) bool {
	for _, a := range c.acts[l.grant.Proxy] {
		moves := a.Verb != history.Edit || a.Replaces || (a.Wanted != nil && a.Wanted.Endpoint != "" && a.Wanted.Endpoint != l.grant.Endpoint)
		if !a.Failed && moves && w.meets(window{a.Asked, a.Answered}) {
			return true
		}
	}
	return slices.ContainsFunc(c.byName[l.grant.Proxy], func(o history.Object) bool {
		return o.At >= w.from-observerLag && o.At <= w.to+observerLag && (isGone(o) || o.Deleting || o.Endpoint != l.grant.Endpoint)
	})
}

// capacity: when a lease is granted, no more leases are held on the instance than
// maxLeases. Leases count while they are certainly held: from the response that granted
// them until a release is requested, or the latest acknowledged end. The limit is the
// largest that discovery may have used.
func capacity(c *checker) {
	for _, l := range c.leases {
		limit, known := c.limit(l)
		if !known {
			continue
		}
		beside := c.heldBeside(l)
		if len(beside)+1 >= limit { // below the limit nothing is proved
			c.checked(Capacity)
		}
		if len(beside)+1 <= limit {
			continue
		}
		lines := []int{l.grant.Line}
		for _, other := range beside {
			lines = append(lines, other.grant.Line)
		}
		c.reportLease(Capacity, l.grant.Answered, l, nil, lines, "granted beside %d held leases on %s, whose limit is %d", len(beside), l.grant.Endpoint, limit)
	}
}

// heldBeside returns the leases on the same instance that are certainly held during the
// whole grant of l.
func (c *checker) heldBeside(l *leaseTimeline) []*leaseTimeline {
	var out []*leaseTimeline
	for _, other := range c.predecessors(l) {
		held := other.grant.Answered <= l.earliest && other.heldUntil() >= l.grant.Answered
		if held && !c.moved(other, window{other.earliest, l.grant.Answered}) {
			out = append(out, other)
		}
	}
	return out
}

// predecessors are the earlier leases on the same instance.
func (c *checker) predecessors(l *leaseTimeline) []*leaseTimeline {
	all := c.onInstance[l.instanceKey()]
	return all[:slices.Index(all, l)]
}

// limit is the largest maxLeases that discovery may have used for a grant.
func (c *checker) limit(l *leaseTimeline) (most int, known bool) {
	outages := c.outages(func(f history.Fault) bool {
		subject := f.Subject == "apiserver" || f.Subject == "etcd" || strings.HasPrefix(f.Subject, "discovery")
		return subject && (f.Family == history.Kill || f.Family == history.Freeze)
	})
	since := staleSince(outages, l.earliest, observerLag, staleGrace)
	consider := func(w *history.Wanted) {
		if w != nil {
			most, known = max(most, int(w.MaxLeases)), true
		}
	}
	var before *history.Wanted
	for _, o := range c.byName[l.grant.Proxy] {
		switch {
		case o.At < since:
			before = o.Wanted
		case o.At <= l.grant.Answered+observerLag:
			consider(o.Wanted)
		}
	}
	consider(before)
	for _, a := range c.acts[l.grant.Proxy] {
		if !a.Failed && a.Asked <= l.grant.Answered && a.Answered >= since {
			consider(a.Wanted)
		}
	}
	return most, known
}

// leasesKept: an acknowledged lease is known until it ends. A call about it before its
// acknowledged end, and before its release is requested, must return that it runs, or
// that its instance is gone, if that is so. Leases may last longer than acknowledged.
func leasesKept(c *checker) {
	for _, l := range c.leases {
		var until time.Duration
		var ack *history.Call
		for _, call := range l.calls {
			if ack != nil && call.Asked >= ack.Answered && call.Answered < until-clockStep && call.Answered < l.released {
				c.stillThere(l, ack, call)
			}
			if acknowledged(call) && call.ExpiresAt >= until {
				until, ack = call.ExpiresAt, call
			}
		}
		c.sameUnderKey(l)
	}
}

// stillThere checks a response about a running lease.
func (c *checker) stillThere(l *leaseTimeline, ack, call *history.Call) {
	if call.Status == 0 || call.Status >= 500 || call.Kind == history.Release || call.Kind == history.List {
		return
	}
	c.checked(LeaseKept)
	gone := call.Status == 410
	lost := call.Status == 404 || gone && call.Reason == "expired"
	if gone && !lost && c.moved(l, window{l.earliest, call.Answered}) {
		return
	}
	c.successor(l, ack, call, lost)
	lines := []int{l.grant.Line, ack.Line, call.Line}
	switch {
	case lost:
		c.reportLease(LeaseKept, call.Answered, l, nil, lines, "%s returned %d %s %s, %s before the acknowledged end", call.Kind, call.Status,
			call.Code, call.Reason, (ack.ExpiresAt - call.Answered).Round(time.Millisecond))
	case gone:
		c.reportLease(LeaseKept, call.Answered, l, nil, lines, "%s returned %s, but the Proxy had the same instance all the time", call.Kind, call.Reason)
	}
}

// successor: a release or report of an expired lease leaves the later leases on the same
// instance alone.
func (c *checker) successor(l *leaseTimeline, ack, call *history.Call, lost bool) {
	for _, old := range c.predecessors(l) {
		if old.earliest == l.earliest {
			continue
		}
		for _, end := range old.calls {
			late := (end.Kind == history.Release || end.Kind == history.Report) && sent(end) && end.Asked > old.expires
			if !late || end.Asked < ack.Answered || end.Answered > call.Asked {
				continue
			}
			c.checked(Successor)
			if lost {
				c.reportLease(Successor, call.Answered, l, []string{old.id}, []int{l.grant.Line, ack.Line, end.Line, call.Line},
					"the lease ran until a %s of the expired lease %s, and is unknown now", end.Kind, old.id)
			}
		}
	}
}

// sameUnderKey: while a lease runs, its Idempotency-Key gets no other lease.
func (c *checker) sameUnderKey(l *leaseTimeline) {
	if l.grant.Key == "" {
		return
	}
	for _, call := range c.keys[keyOf(l.grant)] {
		runs := call.Asked >= l.grant.Answered && call.Answered < l.grant.ExpiresAt-clockStep && call.Answered < l.released
		if !runs || call.Status != 201 {
			continue
		}
		c.checked(LeaseKept)
		if call.LeaseID != l.id && !c.moved(l, window{l.earliest, call.Answered}) {
			c.reportLease(LeaseKept, call.Answered, l, []string{call.LeaseID}, []int{l.grant.Line, call.Line}, "its Idempotency-Key got another lease while it ran")
		}
	}
}

// fencing: in one domain no two leases have the same token, a lease keeps its token, and
// a grant that was requested after another response has the larger token.
func fencing(c *checker) {
	holders := map[string]*leaseTimeline{}
	byDomain := map[string][]*leaseTimeline{}
	for _, l := range c.leases {
		c.checked(Fencing)
		byDomain[l.domain] = append(byDomain[l.domain], l)
		token := fmt.Sprintf("%s\x00%d", l.domain, l.grant.FencingToken)
		if other := holders[token]; other != nil {
			c.reportLease(Fencing, l.grant.Answered, l, []string{other.id}, []int{other.grant.Line, l.grant.Line}, "token %d was given twice", l.grant.FencingToken)
		}
		holders[token] = l
		c.keepsToken(l)
	}
	for _, leases := range byDomain {
		c.tokensGrow(leases)
	}
}

func (c *checker) keepsToken(l *leaseTimeline) {
	for _, call := range l.calls {
		lines := []int{l.grant.Line, call.Line}
		shared := granted(call) && call != l.grant && (call.Key == "" || call.Key != l.grant.Key)
		switch {
		case !acknowledged(call):
		case call.FencingToken != l.grant.FencingToken:
			c.reportLease(Fencing, call.Answered, l, nil, lines, "its token was %d and is %d", l.grant.FencingToken, call.FencingToken)
		case shared:
			c.reportLease(Fencing, call.Answered, l, nil, lines, "the lease was granted to two requests")
		}
	}
}

// tokensGrow takes leases in the order of earliest.
func (c *checker) tokensGrow(leases []*leaseTimeline) {
	answered := slices.SortedFunc(slices.Values(leases), func(a, b *leaseTimeline) int { return cmp.Compare(a.grant.Answered, b.grant.Answered) })
	var largest *history.Call
	for _, l := range leases {
		for ; len(answered) > 0 && answered[0].grant.Answered < l.earliest; answered = answered[1:] {
			if g := answered[0].grant; largest == nil || g.FencingToken > largest.FencingToken {
				largest = g
			}
		}
		if largest != nil && l.grant.FencingToken < largest.FencingToken {
			c.reportLease(Fencing, l.grant.Answered, l, nil, []int{largest.Line, l.grant.Line}, "token %d was given after %d", l.grant.FencingToken, largest.FencingToken)
		}
	}
}
