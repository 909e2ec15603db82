package check

import (
	"slices"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// instance is a VM or Pod that ended.
type instance struct {
	kind, id, uid, specHash string
	// born is when it was seen first, ends when it was seen to go.
	born, ends time.Duration
	lines      []int
}

// deletions: an instance goes only when its Proxy is deleted, asks for another, or
// when the instance was ended by somebody else. A VM that never ran does not count:
// that is how failed inserts look.
func deletions(c *checker) {
	for _, v := range c.vms {
		end := v.leaving
		if end == nil {
			end = v.after
		}
		if v.UID == "" || v.ran == nil {
			continue
		}
		c.checked(NotDeleted)
		if end != nil && !v.ended && !within(c.down("gcestandin"), window{v.first.At, end.At}, observerLag) {
			c.checkEnd(instance{"VM", v.ID, v.UID, v.SpecHash, v.first.Asked, end.At, []int{v.first.Line, end.Line}})
		}
	}
	for uid, records := range c.pods {
		c.checked(NotDeleted)
		i := slices.IndexFunc(records, func(o history.Object) bool { return o.Deleting || isGone(o) })
		failed := slices.ContainsFunc(records, func(o history.Object) bool {
			return o.Phase == "Failed" || o.Phase == "Succeeded" || o.Phase == "Unknown"
		})
		if i < 0 || failed {
			continue
		}
		first, end := records[0], records[i]
		c.checkEnd(instance{"Pod", uid, first.OwnerUID, first.SpecHash, first.At, end.At, []int{first.Line, end.Line}})
	}
}

func (c *checker) checkEnd(i instance) {
	p := c.proxies[i.uid]
	if p == nil || c.deletedBy(p, i.ends) || c.wantedOther(p, i) || c.terminated(p, i.ends) {
		return
	}
	c.report(Violation{
		Promise: NotDeleted, At: i.ends, Subjects: []string{p.name, p.uid, i.kind + " " + i.id}, Lines: i.lines,
		What: "it went, and its Proxy was there, asked for nothing else, and nobody had ended the instance",
	})
}

// deletedBy reports whether somebody may have deleted the Proxy by then.
func (c *checker) deletedBy(p *proxyTimeline, t time.Duration) bool {
	for _, a := range c.acts[p.name] {
		if a.Verb == history.Delete && !a.Failed && a.Asked <= t && (a.UID == "" || a.UID == p.uid) {
			return true
		}
	}
	return slices.ContainsFunc(p.seen, func(o history.Object) bool { return (o.Deleting || isGone(o)) && o.At <= t })
}

// wantedOther reports whether the Proxy asked for another instance at some moment
// of this one's life, or, since observers may lag, shortly before it.
func (c *checker) wantedOther(p *proxyTimeline, i instance) bool {
	if i.specHash == "" {
		return true
	}
	other := func(w *history.Wanted) bool { return w != nil && w.SpecHash != i.specHash }
	for n := range p.seen {
		o := &p.seen[n]
		over := n+1 < len(p.seen) && p.seen[n+1].At < i.born-observerLag
		if o.At <= i.ends+observerLag && !over && other(o.Wanted) {
			return true
		}
	}
	for _, a := range c.acts[p.name] {
		mine := a.UID == "" || a.UID == p.uid
		if mine && !a.Failed && a.Asked <= i.ends && a.Answered >= i.born-observerLag && other(a.Wanted) {
			return true
		}
	}
	return false
}

// terminated reports whether the campaign had ended an instance of the Proxy.
func (c *checker) terminated(p *proxyTimeline, t time.Duration) bool {
	return slices.ContainsFunc(c.Faults, func(f history.Fault) bool {
		mine := f.UID == p.uid || f.UID == "" && f.Subject == p.name
		return f.Family == history.Terminated && mine && f.From <= t
	})
}

// revision orders what the API server stores: it is etcd's.
func revision(o history.Object) int64 {
	n, err := strconv.ParseInt(o.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
