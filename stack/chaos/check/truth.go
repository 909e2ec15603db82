package check

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// groundTruth is what the campaign made of one instance, in the order of At.
type groundTruth []history.Truth

// groundTruthOf the instance that a Proxy's record tells of. An External proxy is its
// endpoint, whoever has a Proxy for it. Addresses of Pods and VMs are used again, so
// that only what was done to this Proxy counts, since it was seen with this instance.
func (c *checker) groundTruthOf(o *history.Object) groundTruth {
	all := c.truths[o.Endpoint]
	if o.Wanted != nil && o.Wanted.Mode == "External" {
		return all
	}
	since := o.At
	if p := c.proxies[o.UID]; p != nil {
		for _, x := range p.seen {
			if x.InstanceID == o.InstanceID && x.Endpoint == o.Endpoint {
				since = x.At
				break
			}
		}
	}
	var out groundTruth
	for _, t := range all {
		if t.UID == o.UID && t.At >= since-observerLag {
			out = append(out, t)
		}
	}
	return out
}

// aliveDuring reports whether it was alive for all of s, as far as the campaign
// knows.
func (r groundTruth) aliveDuring(s window) bool {
	state := history.Alive
	for _, t := range r {
		switch {
		case t.At <= s.from:
			state = t.State
		case t.At <= s.to && t.State != history.Alive:
			return false
		}
	}
	return state == history.Alive
}

// deadSince is since when it was not alive at any moment up to t; ok is false when it
// was.
func (r groundTruth) deadSince(t time.Duration) (since time.Duration, record history.Truth, ok bool) {
	for _, truth := range r {
		switch {
		case truth.At > t:
			return since, record, ok
		case truth.State == history.Alive:
			ok = false
		case !ok:
			since, record, ok = truth.At, truth, true
		}
	}
	return since, record, ok
}
