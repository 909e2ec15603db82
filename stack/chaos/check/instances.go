package check

import (
	"fmt"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// duplicates: no Proxy has two VMs at once, in any state, nor processes of two Pods. Both
// are in one table.
func duplicates(c *checker) {
	reported := map[string]bool{}
	report := func(at time.Duration, line int, uid, a, b, kind string) {
		if key := a + "\x00" + b; !reported[key] {
			reported[key] = true
			c.report(NotDoubled, at, []string{c.nameOf(uid), uid}, []int{line}, "it has the %ss %s and %s at once", kind, a, b)
		}
	}
	for _, table := range c.VMs {
		first := map[string]string{}
		for _, vm := range table.VMs {
			switch other, twice := first[vm.UID]; {
			case vm.UID == "":
			case twice:
				report(table.At, table.Line, vm.UID, other, vm.ID, "VM")
			default:
				first[vm.UID] = vm.ID
				c.checked(NotDoubled)
			}
		}
	}
	for _, table := range c.Processes {
		first := map[string]string{}
		for _, p := range table.Processes {
			uid := ""
			if records := c.pods[p.Pod]; len(records) > 0 {
				uid = records[0].OwnerUID
			}
			if uid == "" || p.State == "Z" {
				continue
			}
			c.checked(NotDoubled)
			if other, twice := first[uid]; twice && other != p.Pod {
				report(table.At, table.Line, uid, other, p.Pod, "Pod")
			}
			first[uid] = p.Pod
		}
	}
}

// orphans: at the end every VM, Pod and ProxyProbe has its Proxy, and every process its
// VM or Pod.
func orphans(c *checker) {
	if !c.settled() {
		return
	}
	check := func(line int, kind, name, uid string) {
		c.checked(NoOrphans)
		if p := c.proxies[uid]; p == nil || p.gone != nil {
			c.report(NoOrphans, c.ending(), []string{kind + " " + name, uid}, []int{line}, "it exists at the end, and its Proxy does not")
		}
	}
	hosts := map[string]bool{}
	for uid, vms := range c.livingVMs() {
		for _, v := range vms {
			hosts[v.Name+"-"+v.ID] = true
			if uid != "" {
				check(v.last.Line, "VM", v.Name, uid)
			}
		}
	}
	for uid, pods := range c.livingPods() {
		for _, p := range pods {
			hosts[p.UID] = true
			check(p.Line, "Pod", p.Name, uid)
		}
	}
	for uid, probe := range c.probes {
		check(probe.Line, "ProxyProbe", probe.Name, uid)
	}
	var last history.Processes
	for _, table := range c.Processes {
		if table.At <= c.ending() {
			last = table
		}
	}
	for _, p := range last.Processes {
		if p.State == "Z" {
			continue
		}
		c.checked(NoOrphans)
		if p.Pod != "" && !hosts[p.Pod] || p.VM != "" && !hosts[p.VM] {
			c.report(NoOrphans, c.ending(), []string{fmt.Sprintf("process %d %s", p.PID, p.Name), p.Pod + p.VM}, []int{last.Line},
				"it runs at the end, and its Pod or VM does not exist")
		}
	}
}

// finalizers: when a Proxy is gone, so are its VM and its Pod. The API server's revisions
// order the deletions. A VM counts as there when a poll that started later returned it.
func finalizers(c *checker) {
	for _, p := range c.proxies {
		if p.gone == nil || p.gone.Change != history.Deleted {
			continue
		}
		for _, v := range c.vms {
			if v.UID == p.uid && v.first.At <= p.gone.At {
				c.checked(Finalizers)
				c.vmOutlives(p, v)
			}
		}
		for _, records := range c.pods {
			if records[0].OwnerUID == p.uid && revision(records[0]) < revision(*p.gone) {
				c.checked(Finalizers)
				c.podOutlives(p, records)
			}
		}
	}
}

func (c *checker) vmOutlives(p *proxyTimeline, v *vmTimeline) {
	seen, line := c.ending(), v.last.Line
	if v.after != nil {
		seen, line = v.after.Confirmed, v.after.Line
	}
	if seen > p.gone.At {
		c.report(Finalizers, p.gone.At, []string{p.name, p.uid, "VM " + v.ID}, []int{p.gone.Line, line},
			"the Proxy is gone, and its VM existed %s later", (seen - p.gone.At).Round(time.Millisecond))
	}
}

func (c *checker) podOutlives(p *proxyTimeline, records []history.Object) {
	last := records[len(records)-1]
	there := !isGone(last) && p.gone.At+observerLag < c.ending()
	if !there && (last.Change != history.Deleted || revision(last) < revision(*p.gone)) {
		return
	}
	v := c.report(Finalizers, p.gone.At, []string{p.name, p.uid, "Pod " + last.Name}, []int{p.gone.Line, last.Line}, "the Proxy was gone before its Pod")
	// Metacontroller reads only its caches, and each of them catches up at another time
	// after an outage: the hook gets a Proxy that is being deleted without the Pod that was
	// created for it a moment ago.
	unseen := slices.ContainsFunc(c.down("apiserver", "etcd"), func(w window) bool {
		return records[0].At >= w.from && p.gone.At <= w.to+staleGrace
	})
	if !there && unseen {
		v.Excuse = "it was created after an outage of the API server, when Metacontroller's cache may have lacked it; the garbage collector deleted it"
	}
}

// instance is a VM or Pod that ended.
type instance struct {
	kind, id, uid, specHash string
	// born is when it was first observed, ends when its end was observed.
	born, ends time.Duration
	lines      []int
}

// deletions: an instance ends only when its Proxy is deleted, needs another one, or when
// others ended the instance. A VM that never ran does not count: it may be a failed
// insert.
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
	if p := c.proxies[i.uid]; p != nil && !c.deletedBy(p, i.ends) && !c.wantedOther(p, i) && !c.terminated(p, i.ends) {
		c.report(NotDeleted, i.ends, []string{p.name, p.uid, i.kind + " " + i.id}, i.lines,
			"it ended although its Proxy existed, needed no other instance, and the instance was not ended by others")
	}
}

// deletedBy reports whether the Proxy may have been deleted by t.
func (c *checker) deletedBy(p *proxyTimeline, t time.Duration) bool {
	return slices.ContainsFunc(c.acts[p.name], func(a history.Act) bool {
		return a.Verb == history.Delete && !a.Failed && a.Asked <= t && (a.UID == "" || a.UID == p.uid)
	}) || slices.ContainsFunc(p.seen, func(o history.Object) bool { return (o.Deleting || isGone(o)) && o.At <= t })
}

// wantedOther reports whether the Proxy needed another instance at some moment of this
// one's life, or shortly before: observers may lag.
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
	return slices.ContainsFunc(c.acts[p.name], func(a history.Act) bool {
		mine := a.UID == "" || a.UID == p.uid
		return mine && !a.Failed && a.Asked <= i.ends && a.Answered >= i.born-observerLag && other(a.Wanted)
	})
}

// terminated reports whether the campaign had ended an instance of the Proxy by t.
func (c *checker) terminated(p *proxyTimeline, t time.Duration) bool {
	return slices.ContainsFunc(c.Faults, func(f history.Fault) bool {
		mine := f.UID == p.uid || f.UID == "" && f.Subject == p.name
		return f.Family == history.Terminated && mine && f.From <= t
	})
}
