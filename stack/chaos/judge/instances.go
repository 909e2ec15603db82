package judge

import (
	"fmt"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// doubled: no Proxy has two VMs at once, in whatever state, nor processes of two
// Pods. Both are seen in one look.
func doubled(c *court) {
	told := map[string]bool{}
	tell := func(at time.Duration, line int, uid, a, b, kind string) {
		if key := a + "\x00" + b; !told[key] {
			told[key] = true
			c.find(Violation{
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
				c.held(NotDoubled)
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
			c.held(NotDoubled)
			if other, twice := first[uid]; twice && other != p.Pod {
				tell(table.At, table.Line, uid, other, p.Pod, "Pod")
			}
			first[uid] = p.Pod
		}
	}
}

func (c *court) ownerOfPod(podUID string) string {
	if records := c.pods[podUID]; len(records) > 0 {
		return records[0].OwnerUID
	}
	return ""
}

func (c *court) nameOf(uid string) string {
	if p := c.proxies[uid]; p != nil {
		return p.name
	}
	return "no Proxy"
}

// settled: the history came to its end in peace, so that its end can be judged.
func (c *court) settled() bool {
	_, ok := c.begins[history.StageSettled]
	return ok
}

// orphans: at the end every VM, Pod and ProxyProbe has its Proxy, and every process
// its VM or Pod.
func orphans(c *court) {
	if !c.settled() {
		return
	}
	check := func(line int, kind, name, uid string) {
		c.held(NoOrphans)
		if p := c.proxies[uid]; p == nil || p.gone != nil {
			c.find(Violation{
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

func (c *court) orphanProcesses(pods, vms map[string]bool) {
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
		c.held(NoOrphans)
		if p.Pod != "" && !pods[p.Pod] || p.VM != "" && !vms[p.VM] {
			c.find(Violation{
				Promise: NoOrphans, At: c.ending(), Subjects: []string{fmt.Sprintf("process %d %s", p.PID, p.Name), p.Pod + p.VM},
				Lines: []int{last.Line}, What: "it runs at the end, and its Pod or VM is not there",
			})
		}
	}
}

// finalizers: when a Proxy is gone, so are its VM and its Pod. The API server's
// revisions say in which order objects went; of a VM it counts that a look that was
// begun later still saw it.
func finalizers(c *court) {
	for _, p := range c.proxies {
		if p.gone == nil || p.gone.Change != history.Deleted {
			continue
		}
		for _, v := range c.vms {
			if v.UID == p.uid && v.first.At <= p.gone.At {
				c.held(Finalizers)
				c.outlives(p, v)
			}
		}
		for _, records := range c.pods {
			if records[0].OwnerUID == p.uid && revision(records[0]) < revision(*p.gone) {
				c.held(Finalizers)
				c.podOutlives(p, records)
			}
		}
	}
}

func (c *court) outlives(p *proxyLife, v *vmLife) {
	seen, line := c.ending(), v.last.Line
	if v.after != nil {
		seen, line = v.after.Confirmed, v.after.Line
	}
	if seen <= p.gone.At {
		return
	}
	c.find(Violation{
		Promise: Finalizers, At: p.gone.At, Subjects: []string{p.name, p.uid, "VM " + v.ID}, Lines: []int{p.gone.Line, line},
		What: fmt.Sprintf("the Proxy is gone, and its VM was seen %s later", (seen - p.gone.At).Round(time.Millisecond)),
	})
}

func (c *court) podOutlives(p *proxyLife, records []history.Object) {
	last := records[len(records)-1]
	there := !isGone(last) && p.gone.At+sight < c.ending()
	if !there && (last.Change != history.Deleted || revision(last) < revision(*p.gone)) {
		return
	}
	v := Violation{
		Promise: Finalizers, At: p.gone.At, Subjects: []string{p.name, p.uid, "Pod " + last.Name}, Lines: []int{p.gone.Line, last.Line},
		What: "the Proxy was gone before its Pod",
	}
	if !there && c.unseen(stretch{records[0].At, p.gone.At}) {
		v.Excuse = "it was made after an outage of the API server, when its maker may not have seen any Pods again; the garbage collector had it"
	}
	c.find(v)
}

// unseen reports whether an instance that was made and outlived its Proxy in life
// may have been unknown to its maker. Metacontroller looks into its caches
// alone, and each catches up at a time of its own after an outage: the hook is
// told of a Proxy that is being deleted, and not of the Pod that was made for it a
// moment ago.
func (c *court) unseen(life stretch) bool {
	return slices.ContainsFunc(c.down("apiserver", "etcd"), func(w stretch) bool {
		return life.from >= w.from && life.to <= w.to+afterglow
	})
}
