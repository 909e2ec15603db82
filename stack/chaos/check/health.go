package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// delays returns the outages that delay verdicts on their way to the status.
func (c *checker) delays() []window {
	return append(c.down("apiserver", "etcd", "metacontroller", "webhooks", "prober"),
		c.outages(func(f history.Fault) bool { return f.Family == history.SlowHooks })...)
}

// hostDown reports whether the host of a Managed instance, and so its proxy, was down at
// some moment of w.
func (c *checker) hostDown(o *history.Object, w window) bool {
	return o.Wanted.Mode != "External" && within(c.down("node", "gcestandin"), w, observerLag)
}

// basisOf is the window of the probes that a Proxy's verdict may be based on.
func basisOf(o *history.Object, delays []window) window {
	return window{staleSince(delays, o.At-observerLag, 0, catchUp) - detectionLimit(o.Wanted), o.At}
}

// flips: while the instance is the same, the condition Healthy of a proxy that works does
// not leave True, whatever else restarts and while the probe target is down; nor
// does that of a dead proxy turn True.
func flips(c *checker) {
	delays := c.delays()
	for _, p := range c.proxies {
		for i := 1; i < len(p.seen); i++ {
			before, after := &p.seen[i-1], &p.seen[i]
			same := after.InstanceID != "" && before.InstanceID == after.InstanceID && before.Endpoint == after.Endpoint
			if !same || after.Deleting || isGone(*after) || after.Wanted == nil {
				continue
			}
			was, is := condition(before, "Healthy").Status == "True", condition(after, "Healthy").Status == "True"
			basis := basisOf(after, delays)
			switch {
			case was && !is && !c.hostDown(after, basis) && c.groundTruthOf(after).aliveDuring(basis):
				c.flipped(p, NoFlips, before, after, basis, "and the proxy worked all the time")
			case is && !was:
				if since, truth, dead := c.groundTruthOf(after).deadSince(after.At); dead && since < basis.from {
					c.flipped(p, StatusTrue, before, after, basis, fmt.Sprintf("and the proxy is %s since %s", truth.State, since.Round(time.Millisecond)))
				}
			}
		}
	}
	c.countFlipChecks()
}

func (c *checker) flipped(p *proxyTimeline, promise Promise, before, after *history.Object, basis window, why string) {
	was, is := condition(before, "Healthy"), condition(after, "Healthy")
	v := c.report(promise, after.At, []string{p.name, p.uid, after.Endpoint}, []int{before.Line, after.Line},
		"the condition Healthy went from %s to %s (%s), %s", was.Status, is.Status, is.Reason, why)
	v.Excuse = c.starved(basis)
}

// countFlipChecks counts the occasions for flips: each restart of a process and each
// outage of the probe target, times the Proxies that are Ready then.
func (c *checker) countFlipChecks() {
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

// deadProxies: no lease is granted on a proxy that has been dead for longer than its
// detection limit, except during outages of the verdict path and staleGrace after them.
func deadProxies(c *checker) {
	exempt := c.verdictPath()
	for _, l := range c.leases {
		c.grantedDead(l, exempt)
	}
	for endpoint, truths := range c.truths {
		for i, t := range truths {
			end := c.movedAt(t.Proxy, endpoint, t.At)
			if i+1 < len(truths) {
				end = min(end, truths[i+1].At)
			}
			w := c.wantedAt(t.Proxy, t.At)
			if w != nil && t.State != history.Alive && outside(exempt, window{t.At + detectionLimit(w), end}) {
				c.checked(DeadProxy)
			}
		}
	}
}

// movedAt is when the Proxy was first observed, after t, with another address or gone.
func (c *checker) movedAt(name, endpoint string, t time.Duration) time.Duration {
	for _, o := range c.byName[name] {
		if o.At > t && (isGone(o) || o.Endpoint != endpoint) {
			return o.At
		}
	}
	return c.ending()
}

// outside reports whether some moment of w is not exempt: a grant then breaks the promise.
func outside(exempt []window, w window) bool {
	for at := w.from + time.Second; at < w.to; at += time.Second {
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
	if !dead || w == nil || within(exempt, window{l.earliest, l.grant.Answered}, staleGrace) {
		return
	}
	age, limit := l.earliest-since, detectionLimit(w)
	if age <= limit {
		return
	}
	v := c.reportLease(DeadProxy, l.grant.Answered, l, []string{l.grant.Endpoint}, []int{truth.Line, l.grant.Line},
		"granted although the proxy was %s for %s, and the limit is %s", truth.State, age.Round(time.Millisecond), limit)
	v.Excuse = c.starved(window{since, l.grant.Answered})
	if from, opened := c.detectableFrom(since, limit); l.earliest-from <= limit {
		v.Excuse = cmp.Or(v.Excuse, "the probe target was down until "+opened.Round(time.Millisecond).String()+", and probes that fail with it are suppressed")
	}
}

// detectableFrom returns from when on a proxy that died at since can be found dead. When
// the probe target goes down before the limit is over, that is when the prober knows that
// the target, opened at that time, is up again. An outage after the limit gives no more
// time.
func (c *checker) detectableFrom(since, limit time.Duration) (from, opened time.Duration) {
	from = since
	outages := c.outages(func(f history.Fault) bool { return f.Family == history.TargetDown })
	slices.SortFunc(outages, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	for _, w := range outages {
		if w.from <= from+limit && w.to+catchUp > from {
			from, opened = w.to+catchUp, w.to
		}
	}
	return from, opened
}

// instanceOf is the last record of the lease's Proxy, up to the grant, with the instance
// of the lease, nil without one.
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
	for _, o := range c.byName[name] {
		if o.Wanted != nil && (out == nil || o.At <= t) {
			out = o.Wanted
		}
	}
	return out
}
