package plan

import (
	"fmt"
	"slices"
	"time"
)

const (
	// proxyLanes is how many proxies of others are broken at once, at most; those
	// of ours have a lane of their own.
	proxyLanes = 8
	// vmsPerTrouble is how many VMs are replaced while Compute Metacontroller errs, so
	// that there is something to err about.
	vmsPerTrouble = 3

	// Of each cycle, after the first round, the last part leaves those alone who
	// bring verdicts from proxies to crawlers. While one of them is away, and for a
	// time after it, nobody can be held to what crawlers are told of dead proxies:
	// without a calm that would be never.
	cycle = 150 * time.Second
	calm  = 90 * time.Second
)

// dealProcesses kills or freezes processes.
func (p *Plan) dealProcesses(cfg Config, name string, deck []card) {
	d := p.dealer(cfg, name)
	d.calms = true
	for d.round(deck, pause{1 * time.Second, 5 * time.Second}) {
	}
	p.done(d)
}

// calm reports whether a card would disturb a calm.
func (d *dealer) calm(c card) bool {
	bringers := []string{APIServer, Etcd, Metacontroller, Prober}
	return d.calms && d.now%cycle >= cycle-calm && slices.Contains(bringers, c.subject)
}

// dealCompute lets Compute Metacontroller err, and has VMs replaced at that time.
func (p *Plan) dealCompute(cfg Config) {
	p.deal(cfg, "compute", computeTroubles(), pause{500 * time.Millisecond, 2 * time.Second})
	troubles := p.Lanes[len(p.Lanes)-1].Steps
	d := p.dealer(cfg, "replacements of VMs")
	for _, t := range troubles {
		for i := range vmsPerTrouble {
			d.lane.Steps = append(d.lane.Steps, Step{
				At: t.At + time.Duration(i+1)*300*time.Millisecond, Kind: Act, Subject: d.one(cfg.VMs), Variant: ActReplace, Pick: d.random.Uint64(),
			})
		}
	}
	p.done(d)
}

// dealProxies breaks proxies of others, and the processes of ours.
func (p *Plan) dealProxies(cfg Config) {
	for i := range proxyLanes {
		// Each lane has proxies of its own: none is broken twice at once.
		var own []string
		for j, name := range cfg.External {
			if j%proxyLanes == i {
				own = append(own, name)
			}
		}
		// Half of what can be wrong with one in each, so that it may last.
		all := externalTroubles()
		half := all[i%2*len(all)/2:][:len(all)/2]
		p.dealOn(cfg, fmt.Sprintf("proxies %d", i+1), half, own, pause{200 * time.Millisecond, 3 * time.Second})
	}
	deck := []card{
		{Proxy, "", ProxyDie, 0, 0}, // its node starts it again
		{Proxy, "", ProxyHang, 2 * time.Second, 20 * time.Second},
	}
	p.dealOn(cfg, "processes of Pods", deck, cfg.Pods, pause{500 * time.Millisecond, 4 * time.Second})
	p.dealOn(cfg, "processes of VMs", []card{{Proxy, "", ProxyHang, 2 * time.Second, 20 * time.Second}}, cfg.VMs, pause{500 * time.Millisecond, 4 * time.Second})
}

// dealInstances ends instances from outside.
func (p *Plan) dealInstances(cfg Config) {
	p.dealOn(cfg, "Pods deleted", []card{{Instance, "", InstanceDelete, 0, 0}}, cfg.Pods, pause{4 * time.Second, 12 * time.Second})
	p.dealOn(cfg, "VMs lost", []card{{Instance, "", InstancePreempt, 0, 0}, {Instance, "", InstanceRemove, 0, 0}}, cfg.VMs, pause{4 * time.Second, 12 * time.Second})
}

// dealOn is deal with a random subject for every step.
func (p *Plan) dealOn(cfg Config, name string, deck []card, subjects []string, between pause) {
	d := p.dealer(cfg, name)
	for d.round(deck, between) {
	}
	for i := range d.lane.Steps {
		d.lane.Steps[i].Subject = d.one(subjects)
	}
	p.done(d)
}

// dealActs has users edit, delete and re-create Proxies, one or two a second.
func (p *Plan) dealActs(cfg Config) {
	d := p.dealer(cfg, "users")
	for {
		d.now += d.between(300*time.Millisecond, 1500*time.Millisecond)
		if d.now > d.end {
			break
		}
		step := Step{At: d.now, Kind: Act, Pick: d.random.Uint64()}
		step.Subject, step.Variant = d.act(cfg)
		d.lane.Steps = append(d.lane.Steps, step)
	}
	p.done(d)
}

// act is on a Proxy of any kind: most are External, yet the other kinds have more
// to do.
func (d *dealer) act(cfg Config) (subject, variant string) {
	subject = d.one([][]string{cfg.External, cfg.Pods, cfg.VMs}[d.random.IntN(3)])
	switch n := d.random.IntN(10); {
	case n < 4:
		return subject, ActInPlace
	case n < 7:
		return subject, ActReplace
	case n < 8:
		return subject, ActDelete
	default:
		return subject, ActRecreate
	}
}
