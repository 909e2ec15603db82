package check

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// stuck: at the end no deletion is under way, and what was deleted is gone.
func stuck(c *checker) {
	if !c.settled() {
		return
	}
	report := func(line int, subject, format string, args ...any) {
		c.report(NotStuck, c.ending(), []string{subject}, []int{line}, format, args...)
	}
	for _, p := range c.living() {
		c.checked(NotStuck)
		if o := p.last(); o.Deleting {
			report(o.Line, p.name, "the Proxy is still being deleted, with the finalizers %v", o.Finalizers)
			continue
		}
		for _, a := range c.acts[p.name] {
			if a.Verb == history.Delete && a.UID == p.uid && !a.Failed && !a.Uncertain {
				report(a.Line, p.name, "the Proxy was deleted and exists without a deletion timestamp")
				break
			}
		}
	}
	for uid, pods := range c.livingPods() {
		for _, pod := range pods {
			c.checked(NotStuck)
			if pod.Deleting {
				report(pod.Line, "Pod "+pod.Name+" of "+c.nameOf(uid), "the Pod is still being deleted")
			}
		}
	}
	for uid, vms := range c.livingVMs() {
		for _, v := range vms {
			c.checked(NotStuck)
			if v.leaving != nil {
				report(v.last.Line, "VM "+v.Name+" of "+c.nameOf(uid), "the VM is still stopping")
			}
		}
	}
}

// converged: at the end every Proxy that should exist does, with one instance made from
// its spec, and a status about that instance. Writes without a response do not count.
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
		for _, text := range c.deviations(p, vms[p.uid], pods[p.uid]) {
			c.report(Converged, c.ending(), []string{p.name, p.uid}, []int{p.last().Line}, "%s", text)
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
			c.report(Converged, c.ending(), []string{name}, []int{last.Line}, "the Proxy should exist and does not")
		}
	}
}

// deviations returns how a Proxy deviates from its spec.
func (c *checker) deviations(p *proxyTimeline, vms []*vmTimeline, pods []history.Object) []string {
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

// detectionLimit is how long a dead proxy may stay Healthy:
// failureThreshold x (interval + timeout) + 5 s.
func detectionLimit(w *history.Wanted) time.Duration {
	return time.Duration(max(1, w.FailureThreshold))*(w.Interval+w.Timeout) + 5*time.Second
}

// statusTrue: at the end a Proxy is Ready if and only if its proxy works. A proxy that
// changed within twice its detection limit does not count.
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
		recent := window{at - 2*detectionLimit(o.Wanted), at}
		subjects := []string{p.name, p.uid, o.Endpoint}
		truths := c.groundTruthOf(o)
		since, truth, dead := truths.deadSince(at)
		switch {
		case dead && since < recent.from:
			c.checked(StatusTrue)
			if o.Phase == "Ready" {
				c.report(StatusTrue, at, subjects, []int{o.Line, truth.Line}, "Ready, and its proxy is %s since %s", truth.State, since.Round(time.Millisecond))
			}
		case truths.aliveDuring(recent):
			c.checked(StatusTrue)
			if o.Phase != "Ready" {
				c.report(StatusTrue, at, subjects, []int{o.Line}, "%s, and its proxy works", o.Phase)
			}
		}
	}
}
