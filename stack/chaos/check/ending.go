package check

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// stuck: at the end nothing is on its way out, and what was deleted is gone.
func stuck(c *checker) {
	if !c.settled() {
		return
	}
	tell := func(line int, subject, what string) {
		c.report(Violation{Promise: NotStuck, At: c.ending(), Subjects: []string{subject}, What: what, Lines: []int{line}})
	}
	for _, p := range c.living() {
		c.checked(NotStuck)
		if o := p.last(); o.Deleting {
			tell(o.Line, p.name, fmt.Sprintf("the Proxy is still being deleted, with the finalizers %v", o.Finalizers))
		} else if a := c.certainlyDeleted(p); a != nil {
			tell(a.Line, p.name, "the Proxy was deleted and is there without a deletion timestamp")
		}
	}
	for uid, pods := range c.livingPods() {
		for _, pod := range pods {
			c.checked(NotStuck)
			if pod.Deleting {
				tell(pod.Line, "Pod "+pod.Name+" of "+c.nameOf(uid), "the Pod is still being deleted")
			}
		}
	}
	for uid, vms := range c.livingVMs() {
		for _, v := range vms {
			c.checked(NotStuck)
			if v.leaving != nil {
				tell(v.last.Line, "VM "+v.Name+" of "+c.nameOf(uid), "the VM is still stopping")
			}
		}
	}
}

func (c *checker) certainlyDeleted(p *proxyTimeline) *history.Act {
	for i := range c.acts[p.name] {
		if a := &c.acts[p.name][i]; a.Verb == history.Delete && a.UID == p.uid && !a.Failed && !a.Uncertain {
			return a
		}
	}
	return nil
}

// converged: at the end every Proxy that should be there is, with one instance, made
// as the spec says, where and at the port that the spec says, and a status that tells
// of that very instance. What was never told to the API server for certain does not
// count.
func converged(c *checker) {
	if !c.settled() {
		return
	}
	there := map[string]bool{}
	vms, pods := c.livingVMs(), c.livingPods()
	for _, p := range c.living() {
		there[p.name] = true
		if p.last().Deleting || p.last().Wanted == nil {
			continue
		}
		c.checked(Converged)
		for _, what := range c.amiss(p, vms[p.uid], pods[p.uid]) {
			c.report(Violation{
				Promise: Converged, At: c.ending(), Subjects: []string{p.name, p.uid}, What: what, Lines: []int{p.last().Line},
			})
		}
	}
	for name, acts := range c.acts {
		last, certain := acts[0], true
		for _, a := range acts {
			if !a.Failed {
				last = a
			}
			certain = certain && !a.Uncertain
		}
		if certain && !last.Failed && last.Verb != history.Delete && !there[name] {
			c.report(Violation{
				Promise: Converged, At: c.ending(), Subjects: []string{name}, What: "the Proxy should be there and is not", Lines: []int{last.Line},
			})
		}
	}
}

// amiss is what is not as the spec of a Proxy says.
func (c *checker) amiss(p *proxyTimeline, vms []*vmTimeline, pods []history.Object) []string {
	o := p.last()
	var out []string
	differs := func(what string, got, want any) {
		if got != want {
			out = append(out, fmt.Sprintf("%s is %v and should be %v", what, got, want))
		}
	}
	differs("status.observedGeneration", o.ObservedGeneration, o.Generation)
	if x := condition(o, "Provisioned"); x.Status != "True" {
		out = append(out, fmt.Sprintf("the condition Provisioned is %s and should be True: %s: %s", x.Status, x.Reason, x.Message))
	}
	if probe, ok := c.probes[p.uid]; !ok {
		out = append(out, "there is no ProxyProbe")
	} else {
		differs("the ProxyProbe's address", probe.Endpoint, o.Endpoint)
	}
	if o.Wanted.Mode == "External" {
		differs("status' address", o.Endpoint, o.Wanted.Endpoint)
		differs("the number of instances", len(vms)+len(pods), 0)
		return out
	}
	differs("status.specHash", o.SpecHash, o.Wanted.SpecHash)
	_, port, _ := net.SplitHostPort(o.Endpoint)
	differs("status.port", port, strconv.Itoa(int(o.Wanted.Port)))
	differs("the number of instances", len(vms)+len(pods), 1)
	for _, v := range vms {
		differs("the VM's spec hash", v.SpecHash, o.Wanted.SpecHash)
		differs("status.instanceID", o.InstanceID, v.ID)
		if o.Wanted.Zone != "" {
			differs("the VM's zone", v.Zone, o.Wanted.Zone)
		}
	}
	for _, pod := range pods {
		differs("the Pod's spec hash", pod.SpecHash, o.Wanted.SpecHash)
		differs("status.instanceID", o.InstanceID, pod.UID)
		differs("the Pod's phase", pod.Phase, "Running")
	}
	return out
}

func condition(o *history.Object, name string) history.Condition {
	for _, x := range o.Conditions {
		if x.Type == name {
			return x
		}
	}
	return history.Condition{Type: name, Status: "missing"}
}

// limit is how long after its death a proxy may still be taken for alive:
// failureThreshold x (interval + timeout) + 5 s.
func limit(w *history.Wanted) time.Duration {
	return time.Duration(max(1, w.FailureThreshold))*(w.Interval+w.Timeout) + 5*time.Second
}

// statusTrue: at the end a Proxy is Ready when its proxy works, and not when it does
// not. A proxy that changed within its limit, or twice that to be told of it, does
// not count.
func statusTrue(c *checker) {
	if !c.settled() {
		return
	}
	at := c.ending()
	for _, p := range c.living() {
		o := p.last()
		if o.Deleting || o.Wanted == nil || o.Endpoint == "" {
			continue
		}
		recent := window{at - 2*limit(o.Wanted), at}
		is := c.groundTruthOf(o)
		since, truth, dead := is.deadSince(at)
		lines := []int{o.Line}
		what := ""
		switch {
		case dead && since < recent.from:
			c.checked(StatusTrue)
			if o.Phase == "Ready" {
				lines = append(lines, truth.Line)
				what = fmt.Sprintf("Ready, and its proxy is %s since %s", truth.State, since.Round(time.Millisecond))
			}
		case is.aliveDuring(recent):
			c.checked(StatusTrue)
			if o.Phase != "Ready" {
				what = fmt.Sprintf("%s, and its proxy works", o.Phase)
			}
		}
		if what != "" {
			c.report(Violation{Promise: StatusTrue, At: at, Subjects: []string{p.name, p.uid, o.Endpoint}, What: what, Lines: lines})
		}
	}
}
