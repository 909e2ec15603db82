package plan

import (
	"fmt"
	"time"
)

const (
	// proxyLanes is the most External proxies that are broken at once. The others have
	// two lanes of their own.
	proxyLanes = 8
	// vmsPerFault is how many VMs are replaced during each fault of Compute Engine, so
	// that there are calls to fail.
	vmsPerFault = 3
)

// processes kills or freezes processes.
func (p *Plan) processes(cfg Config, name string, deck []card) {
	d := p.dealer(cfg, name)
	d.calms = true
	for d.round(deck, pause{1 * time.Second, 5 * time.Second}) {
	}
	p.done(d)
}

// compute has Compute Engine fail, and VMs replaced meanwhile.
func (p *Plan) compute(cfg Config) {
	p.deal(cfg, "compute", computeFaults(), pause{500 * time.Millisecond, 2 * time.Second})
	faults := p.Lanes[len(p.Lanes)-1].Steps
	d := p.dealer(cfg, "replacements of VMs")
	for _, f := range faults {
		for i := range vmsPerFault {
			d.lane.Steps = append(d.lane.Steps, Step{
				At: f.At + time.Duration(i+1)*300*time.Millisecond, Kind: Act, Subject: d.one(cfg.VMs), Variant: ActReplace, Pick: d.random.Uint64(),
			})
		}
	}
	p.done(d)
}

// proxies breaks External proxies, and the processes of the others.
func (p *Plan) proxies(cfg Config) {
	for i := range proxyLanes {
		// No two lanes share a proxy: none is broken twice at once.
		var own []string
		for j, name := range cfg.External {
			if j%proxyLanes == i {
				own = append(own, name)
			}
		}
		// Half of the faults in each, so that each may last.
		all := externalFaults()
		half := all[i%2*len(all)/2:][:len(all)/2]
		p.dealOn(cfg, fmt.Sprintf("proxies %d", i+1), half, own, pause{200 * time.Millisecond, 3 * time.Second})
	}
	deck := []card{
		{kind: Proxy, variant: ProxyDie}, // the node restarts it
		{kind: Proxy, variant: ProxyHang, least: 2 * time.Second, most: 20 * time.Second},
	}
	p.dealOn(cfg, "processes of Pods", deck, cfg.Pods, pause{500 * time.Millisecond, 4 * time.Second})
	p.dealOn(cfg, "processes of VMs", []card{{kind: Proxy, variant: ProxyHang, least: 2 * time.Second, most: 20 * time.Second}}, cfg.VMs, pause{500 * time.Millisecond, 4 * time.Second})
}

// instances ends instances from outside.
func (p *Plan) instances(cfg Config) {
	p.dealOn(cfg, "Pods deleted", []card{{kind: Instance, variant: InstanceDelete}}, cfg.Pods, pause{4 * time.Second, 12 * time.Second})
	p.dealOn(cfg, "VMs lost", []card{{kind: Instance, variant: InstancePreempt}, {kind: Instance, variant: InstanceRemove}}, cfg.VMs, pause{4 * time.Second, 12 * time.Second})
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

// acts has users edit, delete and re-create Proxies, one or two a second.
func (p *Plan) acts(cfg Config) {
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

// act picks a kind of Proxy first: most Proxies are External, but the other kinds have
// more to do.
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
