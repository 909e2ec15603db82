package check

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// never is later than everything.
const never = time.Duration(math.MaxInt64)

// proxyTimeline is one Proxy object.
type proxyTimeline struct {
	uid, name string
	seen      []history.Object // in the order of At
	gone      *history.Object  // the record of its end, nil while it exists
}

func (p *proxyTimeline) last() *history.Object { return &p.seen[len(p.seen)-1] }

// at is the record that was current at t, nil without one.
func (p *proxyTimeline) at(t time.Duration) *history.Object {
	n := sort.Search(len(p.seen), func(i int) bool { return p.seen[i].At > t })
	if n == 0 || isGone(p.seen[n-1]) {
		return nil
	}
	return &p.seen[n-1]
}

// vmTimeline is one VM, as first seen.
type vmTimeline struct {
	history.VM
	// first and last are the first and the last table with it. after is the next one,
	// nil while the VM exists.
	first, last, after *history.VMs
	// ran is the first table in which it was RUNNING, leaving that in which it was
	// STOPPING.
	ran, leaving *history.VMs
	// ended is set when it stopped without a delete.
	ended bool
}

func newChecker(h *history.History) *checker {
	c := &checker{
		History: h, checks: map[Promise]int{}, stages: map[history.StageName]window{},
		proxies: map[string]*proxyTimeline{}, byName: map[string][]history.Object{}, acts: map[string][]history.Act{},
		truths: map[string][]history.Truth{}, pods: map[string][]history.Object{}, vms: map[string]*vmTimeline{},
		probes: map[string]history.Object{}, keys: map[string][]*history.Call{}, onInstance: map[string][]*leaseTimeline{},
	}
	for _, s := range c.Stages {
		from, to, _ := c.StageAt(s.Name)
		c.stages[s.Name] = window{from, to}
	}
	for _, o := range c.Objects {
		if o.At <= c.ending() {
			c.indexObject(o)
		}
	}
	c.indexVMs()
	for _, a := range c.Acts {
		c.acts[a.Proxy] = append(c.acts[a.Proxy], a)
	}
	for _, t := range c.Truths {
		c.truths[t.Endpoint] = append(c.truths[t.Endpoint], t)
	}
	c.indexLeases()
	return c
}

func (c *checker) indexObject(o history.Object) {
	switch o.Kind {
	case "Proxy":
		p := c.proxies[o.UID]
		if p == nil {
			p = &proxyTimeline{uid: o.UID, name: o.Name}
			c.proxies[o.UID] = p
		}
		c.byName[o.Name] = append(c.byName[o.Name], o)
		p.seen = append(p.seen, o)
		if isGone(o) {
			p.gone = &o
		}
	case "Pod":
		c.pods[o.UID] = append(c.pods[o.UID], o)
	case "ProxyProbe":
		if isGone(o) {
			delete(c.probes, o.OwnerUID)
		} else {
			c.probes[o.OwnerUID] = o
		}
	}
}

func isGone(o history.Object) bool {
	return o.Change == history.Deleted || o.Change == history.Vanished
}

func (c *checker) indexVMs() {
	present := map[string]*vmTimeline{}
	for i := range c.VMs {
		table := &c.VMs[i]
		if table.At > c.ending() {
			break
		}
		now := map[string]*vmTimeline{}
		for _, vm := range table.VMs {
			v := c.vms[vm.ID]
			if v == nil {
				v = &vmTimeline{VM: vm, first: table}
				c.vms[vm.ID] = v
			}
			v.see(vm, table)
			now[vm.ID] = v
		}
		for id, v := range present {
			if now[id] == nil {
				v.after = table
			}
		}
		present = now
	}
}

func (v *vmTimeline) see(vm history.VM, table *history.VMs) {
	v.last, v.after = table, nil
	switch vm.State {
	case "RUNNING":
		if v.ran == nil {
			v.ran = table
		}
	case "STOPPING":
		if v.leaving == nil {
			v.leaving = table
		}
	case "TERMINATED", "STOPPED", "SUSPENDED", "SUSPENDING":
		v.ended = true
	}
}

// living returns the Proxies that exist at the end.
func (c *checker) living() []*proxyTimeline {
	var out []*proxyTimeline
	for _, p := range c.proxies {
		if p.gone == nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *proxyTimeline) int { return strings.Compare(a.name, b.name) })
	return out
}

// livingVMs returns the VMs that exist at the end, by the UID of their Proxy.
func (c *checker) livingVMs() map[string][]*vmTimeline {
	out := map[string][]*vmTimeline{}
	for _, v := range c.vms {
		if v.after == nil {
			out[v.UID] = append(out[v.UID], v)
		}
	}
	return out
}

// livingPods returns the Pods that exist at the end, by the UID of their Proxy.
func (c *checker) livingPods() map[string][]history.Object {
	out := map[string][]history.Object{}
	for _, records := range c.pods {
		if last := records[len(records)-1]; !isGone(last) {
			out[last.OwnerUID] = append(out[last.OwnerUID], last)
		}
	}
	return out
}

func (c *checker) nameOf(uid string) string {
	if p := c.proxies[uid]; p != nil {
		return p.name
	}
	return "no Proxy"
}

// settled reports whether the campaign reached its last stage, so that the final state
// can be checked.
func (c *checker) settled() bool {
	_, ok := c.stages[history.StageSettled]
	return ok
}

// ending is the start of the stage end: later records do not count.
func (c *checker) ending() time.Duration {
	if s, ok := c.stages[history.StageEnd]; ok {
		return s.from
	}
	return c.End
}

// revision is etcd's, which orders the writes of all objects.
func revision(o history.Object) int64 {
	n, _ := strconv.ParseInt(o.ResourceVersion, 10, 64) // 0 for none
	return n
}

func condition(o *history.Object, name string) history.Condition {
	if i := slices.IndexFunc(o.Conditions, func(c history.Condition) bool { return c.Type == name }); i >= 0 {
		return o.Conditions[i]
	}
	return history.Condition{Type: name, Status: "missing"}
}

// groundTruth is the states that the campaign put one instance into, in the order of
// At.
type groundTruth []history.Truth

// groundTruthOf returns the states of the instance in a Proxy's status. An External
// proxy is its endpoint. Addresses of Pods and VMs are reused: only states of this
// Proxy count, from when its status first had this instance.
func (c *checker) groundTruthOf(o *history.Object) groundTruth {
	all := c.truths[o.Endpoint]
	if o.Wanted != nil && o.Wanted.Mode == "External" {
		return all
	}
	since := o.At
	if p := c.proxies[o.UID]; p != nil {
		i := slices.IndexFunc(p.seen, func(x history.Object) bool { return x.InstanceID == o.InstanceID && x.Endpoint == o.Endpoint })
		if i >= 0 {
			since = p.seen[i].At
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

// aliveDuring reports whether the instance was alive for all of w.
func (g groundTruth) aliveDuring(w window) bool {
	state := history.Alive
	for _, t := range g {
		switch {
		case t.At <= w.from:
			state = t.State
		case t.At <= w.to && t.State != history.Alive:
			return false
		}
	}
	return state == history.Alive
}

// deadSince returns since when the instance was not alive at any moment up to t. ok is
// false when it was alive at t.
func (g groundTruth) deadSince(t time.Duration) (since time.Duration, record history.Truth, ok bool) {
	for _, truth := range g {
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
