package plan

import (
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

const (
	// proxyLanes is the most External proxies that are broken at once. The others have
	// two lanes of their own.
	proxyLanes = 8
	// vmsPerFault is how many VMs are replaced during each fault of Compute Engine, so
	// that there are calls to fail.
	vmsPerFault = 3
)

// compute has Compute Engine fail, and VMs replaced meanwhile.
func (p *Plan) compute(cfg Config) {
	p.deal(cfg, "compute", computeFaults, nil, 500*time.Millisecond, 2*time.Second)
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
		for j := i; j < len(cfg.External); j += proxyLanes {
			own = append(own, cfg.External[j])
		}
		// Half of the faults in each, so that each may last.
		half := externalFaults[i%2*len(externalFaults)/2:][:len(externalFaults)/2]
		p.deal(cfg, fmt.Sprintf("proxies %d", i+1), half, own, 200*time.Millisecond, 3*time.Second)
	}
	deaths := append(variants(history.ProxyTruth, 0, 0, ProxyDie), hangs...) // the node restarts a process
	p.deal(cfg, "processes of Pods", deaths, cfg.Pods, 500*time.Millisecond, 4*time.Second)
	p.deal(cfg, "processes of VMs", hangs, cfg.VMs, 500*time.Millisecond, 4*time.Second)
}

// instances ends instances from outside.
func (p *Plan) instances(cfg Config) {
	deleted, lost := variants(history.Terminated, 0, 0, InstanceDelete), variants(history.Terminated, 0, 0, InstancePreempt, InstanceRemove)
	p.deal(cfg, "Pods deleted", deleted, cfg.Pods, 4*time.Second, 12*time.Second)
	p.deal(cfg, "VMs lost", lost, cfg.VMs, 4*time.Second, 12*time.Second)
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
