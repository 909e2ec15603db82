package check

import (
	"fmt"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// capacity: at the moment of a grant, no more leases are held on the instance than
// its Proxy allows. Only leases count that were held for certain: from the answer
// that granted them until somebody asked to release them, or the latest end that was
// acknowledged. The limit is the largest that discovery may have known of.
func capacity(c *checker) {
	running := map[string][]*leaseTimeline{} // by domain, Proxy and endpoint
	for _, l := range c.sortedLeases() {
		key := l.domain + "\x00" + l.grant.Proxy + "\x00" + l.grant.Endpoint
		before := running[key]
		running[key] = append(before, l)
		limit, known := c.limit(l)
		if !known {
			continue
		}
		beside := c.heldBeside(l, before)
		if len(beside)+1 >= limit { // below it, nothing was tried
			c.checked(Capacity)
		}
		if len(beside)+1 <= limit {
			continue
		}
		lines := []int{l.grant.Line}
		for _, other := range beside {
			lines = append(lines, other.grant.Line)
		}
		c.report(Violation{
			Promise: Capacity, At: l.grant.Answered, Subjects: []string{l.grant.Proxy, l.domain, l.id}, Lines: lines,
			What: fmt.Sprintf("granted beside %d that are held on %s, of which %d may be", len(beside), l.grant.Endpoint, limit),
		})
	}
}

// heldBeside returns the leases that are held for certain for all of the time in
// which l was granted, on the same instance.
func (c *checker) heldBeside(l *leaseTimeline, candidates []*leaseTimeline) []*leaseTimeline {
	var out []*leaseTimeline
	for _, other := range candidates {
		if other.grant.Answered > l.earliest || other.heldUntil() < l.grant.Answered {
			continue
		}
		if _, moved := c.changed(other, window{other.earliest, l.grant.Answered}); !moved {
			out = append(out, other)
		}
	}
	return out
}

// limit is the largest maxLeases that discovery may have gone by.
func (c *checker) limit(l *leaseTimeline) (most int, known bool) {
	blind := c.outages(func(f history.Fault) bool {
		apart := f.Subject == "apiserver" || f.Subject == "etcd" || isDiscovery(f.Subject)
		return apart && (f.Family == history.Kill || f.Family == history.Freeze)
	})
	since := staleSince(blind, l.earliest, observerLag, staleGrace)
	var before *history.Object
	consider := func(w *history.Wanted) {
		if w != nil {
			most, known = max(most, int(w.MaxLeases)), true
		}
	}
	records := c.byName[l.grant.Proxy]
	for i := range records {
		switch o := &records[i]; {
		case o.At < since:
			before = o
		case o.At <= l.grant.Answered+observerLag:
			consider(o.Wanted)
		}
	}
	if before != nil {
		consider(before.Wanted)
	}
	for _, a := range c.acts[l.grant.Proxy] {
		if !a.Failed && a.Asked <= l.grant.Answered && a.Answered >= since {
			consider(a.Wanted)
		}
	}
	return most, known
}

func isDiscovery(subject string) bool { return strings.HasPrefix(subject, "discovery") }

// clockStep is by how much two readings of the wall clock may differ that were to
// be the same: answers are rounded down to a millisecond.
const clockStep = 50 * time.Millisecond
