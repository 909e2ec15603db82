package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// bringers of verdicts to the API server: while one is away a verdict is late.
func (c *checker) late() []window {
	return append(c.down("apiserver", "etcd", "metacontroller", "webhooks", "prober"),
		c.outages(func(f history.Fault) bool { return f.Family == history.SlowHooks })...)
}

// hosted reports whether what runs the instance was away at some moment of s, and its
// proxy with it.
func (c *checker) hosted(o *history.Object, s window) bool {
	return o.Wanted.Mode != "External" && within(c.down("node", "gcestandin"), s, observerLag)
}

// flips: the status of a proxy that works does not turn from Healthy to something
// else while its instance is the same, whatever else of the system restarts, and
// while the probe target is away; nor that of a dead one to Healthy.
func flips(c *checker) {
	late := c.late()
	for _, p := range c.proxies {
		for i := 1; i < len(p.seen); i++ {
			before, after := &p.seen[i-1], &p.seen[i]
			same := after.InstanceID != "" && before.InstanceID == after.InstanceID && before.Endpoint == after.Endpoint
			if !same || after.Deleting || isGone(*after) || after.Wanted == nil {
				continue
			}
			was, is := condition(before, "Healthy").Status == "True", condition(after, "Healthy").Status == "True"
			// What the verdict may be built on.
			basis := window{delayedSince(late, after.At) - limit(after.Wanted), after.At}
			switch {
			case was && !is && !c.hosted(after, basis) && c.groundTruthOf(after).aliveDuring(basis):
				c.flipped(p, NoFlips, before, after, basis, "and it worked all the time")
			case is && !was:
				if since, truth, dead := c.groundTruthOf(after).deadSince(after.At); dead && since < basis.from {
					c.flipped(p, StatusTrue, before, after, basis, fmt.Sprintf("and it is %s since %s", truth.State, since.Round(time.Millisecond)))
				}
			}
		}
	}
	c.countSteady()
}

func (c *checker) flipped(p *proxyTimeline, promise Promise, before, after *history.Object, basis window, why string) {
	reason := ""
	for _, x := range after.Conditions {
		if x.Type == "Healthy" {
			reason = x.Reason
		}
	}
	c.report(Violation{
		Promise: promise, At: after.At, Subjects: []string{p.name, p.uid, after.Endpoint}, Lines: []int{before.Line, after.Line},
		What:   fmt.Sprintf("the condition Healthy went from %s to %s (%s), %s", condition(before, "Healthy").Status, condition(after, "Healthy").Status, reason, why),
		Excuse: c.starved(basis),
	})
}

// countSteady counts what flips was held against: each restart of ours, and each
// outage of the probe target, times the Proxies that were Ready then.
func (c *checker) countSteady() {
	windows := c.outages(func(f history.Fault) bool {
		return f.Family == history.Kill || f.Family == history.Freeze || f.Family == history.TargetDown
	})
	for _, w := range windows {
		for _, p := range c.proxies {
			if o := p.at(w.from); o != nil && o.Phase == "Ready" && c.groundTruthOf(o).aliveDuring(w) {
				c.checked(NoFlips)
			}
		}
	}
}

// at is the record that was true at t, nil when there was none.
func (p *proxyTimeline) at(t time.Duration) *history.Object {
	var out *history.Object
	for i := range p.seen {
		if p.seen[i].At > t {
			break
		}
		out = &p.seen[i]
	}
	if out == nil || isGone(*out) {
		return nil
	}
	return out
}

// deadProxies: nobody is granted a proxy that has been dead for longer than the
// limit, outside the windows, and staleGrace behind them, in which the API server, the
// engine or the prober was itself down or frozen.
func deadProxies(c *checker) {
	exempt := c.down("apiserver", "etcd", "metacontroller", "prober")
	for _, l := range c.sortedLeases() {
		c.grantedDead(l, exempt)
	}
	for endpoint, truths := range c.truths {
		for i, t := range truths {
			end := c.leaves(t.Proxy, endpoint, t.At)
			if i+1 < len(truths) {
				end = min(end, truths[i+1].At)
			}
			w := c.wantedAt(t.Proxy, t.At)
			if w != nil && t.State != history.Alive && outside(exempt, window{t.At + limit(w), end}) {
				c.checked(DeadProxy)
			}
		}
	}
}

// leaves is when the Proxy of that name was first seen, after t, with another address
// or not at all.
func (c *checker) leaves(name, endpoint string, t time.Duration) time.Duration {
	for _, o := range c.byName[name] {
		if o.At > t && (isGone(o) || o.Endpoint != endpoint) {
			return o.At
		}
	}
	return c.ending()
}

// outside reports whether for some of s nothing is exempt, and who grants a dead
// proxy then breaks the promise.
func outside(exempt []window, s window) bool {
	for at := s.from + time.Second; at < s.to; at += time.Second {
		if !within(exempt, window{at, at}, staleGrace) {
			return true
		}
	}
	return false
}

func (c *checker) grantedDead(l *leaseTimeline, exempt []window) {
	o := c.instanceOf(l)
	if o == nil {
		return
	}
	since, truth, dead := c.groundTruthOf(o).deadSince(l.grant.Answered)
	w := c.wantedAt(l.grant.Proxy, l.earliest)
	if !dead || w == nil || l.earliest-since <= limit(w) {
		return
	}
	granting := window{l.earliest, l.grant.Answered}
	if within(exempt, granting, staleGrace) {
		return
	}
	excuse := c.starved(window{since, l.grant.Answered})
	if told, after := c.tellable(since, limit(w)); l.earliest-told <= limit(w) {
		excuse = cmp.Or(excuse, "the probe target was down until "+after.Round(time.Millisecond).String()+", and what fails with it tells nothing of a proxy")
	}
	c.report(Violation{
		Promise: DeadProxy, At: l.grant.Answered, Subjects: []string{l.grant.Proxy, l.domain, l.id, l.grant.Endpoint},
		What: fmt.Sprintf("granted although the proxy was %s for %s, and the limit is %s", truth.State,
			(l.earliest - since).Round(time.Millisecond), limit(w)),
		Lines: []int{truth.Line, l.grant.Line}, Excuse: excuse,
	})
}

// tellable is from when on it could be told that a proxy is dead which died at
// since: when the probe target goes down before the limit is over, the time runs from
// when everybody knows that it is back, which was then opened at after. A proxy that
// was to be told of before gets no more time.
func (c *checker) tellable(since, limit time.Duration) (from, after time.Duration) {
	from = since
	outages := c.outages(func(f history.Fault) bool { return f.Family == history.TargetDown })
	slices.SortFunc(outages, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	for _, w := range outages {
		if w.from <= from+limit && w.to+catchUp > from {
			from, after = w.to+catchUp, w.to
		}
	}
	return from, after
}

// instanceOf is the last record of the lease's Proxy, up to its grant, with the
// instance that the lease is on; nil when there is none.
func (c *checker) instanceOf(l *leaseTimeline) *history.Object {
	var out *history.Object
	records := c.byName[l.grant.Proxy]
	for i := range records {
		if o := &records[i]; o.At <= l.grant.Answered+observerLag && o.Endpoint == l.grant.Endpoint {
			out = o
		}
	}
	return out
}

// wantedAt is the spec of a Proxy at t.
func (c *checker) wantedAt(name string, t time.Duration) *history.Wanted {
	var out *history.Wanted
	for i := range c.byName[name] {
		if o := &c.byName[name][i]; o.Wanted != nil && (out == nil || o.At <= t) {
			out = o.Wanted
		}
	}
	return out
}
