package check

import (
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// kept: a lease that was acknowledged is known until it ends, and its end is true.
// Who asks about it before its acknowledged end, and before anybody asked to release
// it, must be told that it runs, or that its instance is gone, which must be so. A
// mended outage only makes leases longer, which nobody is condemned for.
func kept(c *checker) {
	for _, l := range c.sortedLeases() {
		var until time.Duration
		var said *history.Call
		for _, call := range l.calls {
			if said != nil && call.Asked >= said.Answered && call.Answered < until-clockStep && call.Answered < l.released {
				c.stillThere(l, said, call)
			}
			if acknowledged(call) && call.ExpiresAt >= until {
				until, said = call.ExpiresAt, call
			}
		}
		c.sameUnderKey(l)
	}
}

// stillThere holds one answer about a running lease against the one before.
func (c *checker) stillThere(l *leaseTimeline, said, call *history.Call) {
	if call.Status == 0 || call.Status >= 500 || call.Kind == history.Release || call.Kind == history.List {
		return
	}
	c.checked(LeaseKept)
	ends := call.Status == 410
	lost := call.Status == 404 || ends && call.Reason == "expired"
	if ends && !lost {
		if _, moved := c.changed(l, window{l.earliest, call.Answered}); moved {
			return
		}
	}
	c.successor(l, said, call, lost)
	if !lost && !ends {
		return
	}
	what := fmt.Sprintf("%s says %d %s %s, %s before the end that was acknowledged", call.Kind, call.Status, call.Code, call.Reason,
		(said.ExpiresAt - call.Answered).Round(time.Millisecond))
	if !lost {
		what = fmt.Sprintf("%s says %s, and the instance was that of its Proxy all the time", call.Kind, call.Reason)
	}
	c.report(Violation{
		Promise: LeaseKept, At: call.Answered, Subjects: []string{l.grant.Proxy, l.domain, l.id}, What: what,
		Lines: []int{l.grant.Line, said.Line, call.Line},
	})
}

// successor: after the end of an expired lease was told to discovery once more, the
// leases that came later on the same instance are as they were.
func (c *checker) successor(l *leaseTimeline, said, call *history.Call, lost bool) {
	for _, old := range c.predecessors(l) {
		for _, end := range old.calls {
			late := (end.Kind == history.Release || end.Kind == history.Report) && sent(end) && end.Asked > old.expires
			if !late || end.Asked < said.Answered || end.Answered > call.Asked {
				continue
			}
			c.checked(Successor)
			if lost {
				c.report(Violation{
					Promise: Successor, At: call.Answered, Subjects: []string{l.grant.Proxy, l.domain, l.id, old.id},
					What:  fmt.Sprintf("the lease ran until a %s of the expired %s, and is not known any more", end.Kind, old.id),
					Lines: []int{l.grant.Line, said.Line, end.Line, call.Line},
				})
			}
		}
	}
}

// predecessors are the leases on the same instance that were granted before.
func (c *checker) predecessors(l *leaseTimeline) []*leaseTimeline {
	if c.onInstance == nil {
		c.onInstance = map[string][]*leaseTimeline{}
		for _, x := range c.sortedLeases() {
			key := x.domain + "\x00" + x.grant.Proxy + "\x00" + x.grant.Endpoint
			c.onInstance[key] = append(c.onInstance[key], x)
		}
	}
	var out []*leaseTimeline
	for _, x := range c.onInstance[l.domain+"\x00"+l.grant.Proxy+"\x00"+l.grant.Endpoint] {
		if x.earliest < l.earliest {
			out = append(out, x)
		}
	}
	return out
}

// sameUnderKey: while a lease runs, the key that it was granted under gets no other.
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
		if call.LeaseID == l.id {
			continue
		}
		if _, moved := c.changed(l, window{l.earliest, call.Answered}); moved {
			continue
		}
		c.report(Violation{
			Promise: LeaseKept, At: call.Answered, Subjects: []string{l.grant.Proxy, l.domain, l.id, call.LeaseID},
			What:  "the key that it was granted under got another lease while it ran",
			Lines: []int{l.grant.Line, call.Line},
		})
	}
}
