package check

import (
	"fmt"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// doubled: no Proxy has two VMs at once, in whatever state, nor processes of two
// Pods. Both are seen in one look.
func doubled(c *checker) {
	told := map[string]bool{}
	tell := func(at time.Duration, line int, uid, a, b, kind string) {
		if key := a + "\x00" + b; !told[key] {
			told[key] = true
			c.report(Violation{
				Promise: NotDoubled, At: at, Subjects: []string{c.nameOf(uid), uid}, Lines: []int{line},
				What: fmt.Sprintf("it has the %ss %s and %s at once", kind, a, b),
			})
		}
	}
	for i := range c.VMs {
		first := map[string]string{}
		for _, vm := range c.VMs[i].VMs {
			switch other, twice := first[vm.UID]; {
			case vm.UID == "":
			case twice:
				tell(c.VMs[i].At, c.VMs[i].Line, vm.UID, other, vm.ID, "VM")
			default:
				first[vm.UID] = vm.ID
				c.checked(NotDoubled)
			}
		}
	}
	for _, table := range c.Processes {
		first := map[string]string{}
		for _, p := range table.Processes {
			uid := c.ownerOfPod(p.Pod)
			if uid == "" || p.State == "Z" {
				continue
			}
			c.checked(NotDoubled)
			if other, twice := first[uid]; twice && other != p.Pod {
				tell(table.At, table.Line, uid, other, p.Pod, "Pod")
			}
			first[uid] = p.Pod
		}
	}
}

func (c *checker) ownerOfPod(podUID string) string {
	if records := c.pods[podUID]; len(records) > 0 {
		return records[0].OwnerUID
	}
	return ""
}

func (c *checker) nameOf(uid string) string {
	if p := c.proxies[uid]; p != nil {
		return p.name
	}
	return "no Proxy"
}

// settled: the history came to its end in peace, so that its end can be judged.
func (c *checker) settled() bool {
	_, ok := c.begins[history.StageSettled]
	return ok
}

// orphans: at the end every VM, Pod and ProxyProbe has its Proxy, and every process
// its VM or Pod.
func orphans(c *checker) {
	if !c.settled() {
		return
	}
	check := func(line int, kind, name, uid string) {
		c.checked(NoOrphans)
		if p := c.proxies[uid]; p == nil || p.gone != nil {
			c.report(Violation{
				Promise: NoOrphans, At: c.ending(), Subjects: []string{kind + " " + name, uid}, Lines: []int{line},
				What: "it is there at the end, and its Proxy is not",
			})
		}
	}
	vmIDs := map[string]bool{}
	for uid, vms := range c.livingVMs() {
		for _, v := range vms {
			vmIDs[v.Name+"-"+v.ID] = true
			if uid != "" {
				check(v.last.Line, "VM", v.Name, uid)
			}
		}
	}
	podUIDs := map[string]bool{}
	for uid, pods := range c.livingPods() {
		for _, p := range pods {
			podUIDs[p.UID] = true
			check(p.Line, "Pod", p.Name, uid)
		}
	}
	for uid, probe := range c.probes {
		check(probe.Line, "ProxyProbe", probe.Name, uid)
	}
	c.orphanProcesses(podUIDs, vmIDs)
}

func (c *checker) orphanProcesses(pods, vms map[string]bool) {
	i := slices.IndexFunc(c.Processes, func(p history.Processes) bool { return p.At > c.ending() })
	if i < 0 {
		i = len(c.Processes)
	}
	if i == 0 {
		return
	}
	last := c.Processes[i-1]
	for _, p := range last.Processes {
		if p.State == "Z" {
			continue
		}
		c.checked(NoOrphans)
		if p.Pod != "" && !pods[p.Pod] || p.VM != "" && !vms[p.VM] {
			c.report(Violation{
				Promise: NoOrphans, At: c.ending(), Subjects: []string{fmt.Sprintf("process %d %s", p.PID, p.Name), p.Pod + p.VM},
				Lines: []int{last.Line}, What: "it runs at the end, and its Pod or VM is not there",
			})
		}
	}
}

// finalizers: when a Proxy is gone, so are its VM and its Pod. The API server's
// revisions say in which order objects went; of a VM it counts that a look that was
// begun later still saw it.
func finalizers(c *checker) {
	for _, p := range c.proxies {
		if p.gone == nil || p.gone.Change != history.Deleted {
			continue
		}
		for _, v := range c.vms {
			if v.UID == p.uid && v.first.At <= p.gone.At {
				c.checked(Finalizers)
				c.outlives(p, v)
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

func (c *checker) outlives(p *proxyTimeline, v *vmTimeline) {
	seen, line := c.ending(), v.last.Line
	if v.after != nil {
		seen, line = v.after.Confirmed, v.after.Line
	}
	if seen <= p.gone.At {
		return
	}
	c.report(Violation{
		Promise: Finalizers, At: p.gone.At, Subjects: []string{p.name, p.uid, "VM " + v.ID}, Lines: []int{p.gone.Line, line},
		What: fmt.Sprintf("the Proxy is gone, and its VM was seen %s later", (seen - p.gone.At).Round(time.Millisecond)),
	})
}

func (c *checker) podOutlives(p *proxyTimeline, records []history.Object) {
	last := records[len(records)-1]
	there := !isGone(last) && p.gone.At+observerLag < c.ending()
	if !there && (last.Change != history.Deleted || revision(last) < revision(*p.gone)) {
		return
	}
	v := Violation{
		Promise: Finalizers, At: p.gone.At, Subjects: []string{p.name, p.uid, "Pod " + last.Name}, Lines: []int{p.gone.Line, last.Line},
		What: "the Proxy was gone before its Pod",
	}
	if !there && c.unseen(window{records[0].At, p.gone.At}) {
		v.Excuse = "it was made after an outage of the API server, when its maker may not have seen any Pods again; the garbage collector had it"
	}
	c.report(v)
}

// unseen reports whether an instance that was made and outlived its Proxy in life
// may have been unknown to its maker. Metacontroller looks into its caches
// alone, and each catches up at a time of its own after an outage: the hook is
// told of a Proxy that is being deleted, and not of the Pod that was made for it a
// moment ago.
func (c *checker) unseen(life window) bool {
	return slices.ContainsFunc(c.down("apiserver", "etcd"), func(w window) bool {
		return life.from >= w.from && life.to <= w.to+staleGrace
	})
}
