package check

import (
	"math"
	"slices"
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
	// gone is the record of its end, nil while it is there.
	gone *history.Object
}

func (p *proxyTimeline) last() *history.Object { return &p.seen[len(p.seen)-1] }

// vmTimeline is one VM.
type vmTimeline struct {
	history.VM // as seen first
	// first and last are the tables that had it first and last; after is the one
	// that did not have it any more, nil while there is none.
	first, last, after *history.VMs
	// ran is the first table in which it was RUNNING, leaving that in which it was
	// on its way out.
	ran, leaving *history.VMs
	// ended: it was TERMINATED or the like while nobody had deleted it.
	ended bool
}

func (c *checker) index() {
	c.begins = map[history.StageName]window{}
	for _, s := range c.Stages {
		from, to, _ := c.StageAt(s.Name)
		c.begins[s.Name] = window{from, to}
	}
	c.indexObjects()
	c.indexVMs()
	c.acts, c.truths = map[string][]history.Act{}, map[string][]history.Truth{}
	for _, a := range c.Acts {
		c.acts[a.Proxy] = append(c.acts[a.Proxy], a)
	}
	for _, t := range c.Truths {
		c.truths[t.Endpoint] = append(c.truths[t.Endpoint], t)
	}
	c.indexCalls()
}

func (c *checker) indexObjects() {
	c.proxies, c.byName = map[string]*proxyTimeline{}, map[string][]history.Object{}
	c.pods, c.probes = map[string][]history.Object{}, map[string]history.Object{}
	for _, o := range c.Objects {
		if o.At > c.ending() {
			continue
		}
		switch o.Kind {
		case "Proxy":
			c.indexProxy(o)
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
}

func (c *checker) indexProxy(o history.Object) {
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
}

func isGone(o history.Object) bool {
	return o.Change == history.Deleted || o.Change == history.Vanished
}

func (c *checker) indexVMs() {
	c.vms = map[string]*vmTimeline{}
	present := map[string]*vmTimeline{}
	for i := range c.VMs {
		table := &c.VMs[i]
		if table.At > c.ending() {
			break
		}
		now := map[string]*vmTimeline{}
		for _, vm := range table.VMs {
			life := c.vms[vm.ID]
			if life == nil {
				life = &vmTimeline{VM: vm, first: table}
				c.vms[vm.ID] = life
			}
			life.see(vm, table)
			now[vm.ID] = life
		}
		for id, life := range present {
			if now[id] == nil {
				life.after = table
			}
		}
		present = now
	}
}

func (l *vmTimeline) see(vm history.VM, table *history.VMs) {
	l.last, l.after = table, nil
	switch vm.State {
	case "RUNNING":
		if l.ran == nil {
			l.ran = table
		}
	case "STOPPING":
		if l.leaving == nil {
			l.leaving = table
		}
	case "TERMINATED", "STOPPED", "SUSPENDED", "SUSPENDING":
		l.ended = true
	}
}

// living returns the Proxies that are there at the end.
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

// livingVMs returns the VMs of the last table, by the UID of their Proxy.
func (c *checker) livingVMs() map[string][]*vmTimeline {
	out := map[string][]*vmTimeline{}
	for _, v := range c.vms {
		if v.after == nil {
			out[v.UID] = append(out[v.UID], v)
		}
	}
	return out
}

// livingPods returns the Pods that are there at the end, by the UID of their Proxy.
func (c *checker) livingPods() map[string][]history.Object {
	out := map[string][]history.Object{}
	for _, records := range c.pods {
		if last := records[len(records)-1]; !isGone(last) {
			out[last.OwnerUID] = append(out[last.OwnerUID], last)
		}
	}
	return out
}
