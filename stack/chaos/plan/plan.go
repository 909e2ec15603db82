package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Least is the shortest trouble in which every family of faults has its turn.
const Least = 75 * time.Second

// Config says what there is to break. All fields are required.
type Config struct {
	// Seed that all follows from.
	Seed uint64
	// Length of the trouble.
	Length time.Duration
	// External, Pods and VMs are the names of the Proxies.
	External, Pods, VMs []string
}

// Plan is what goes wrong. Steps of different lanes overlap.
type Plan struct {
	Lanes []Lane
}

// New returns the plan of a seed.
func New(cfg Config) (*Plan, error) {
	switch {
	case cfg.Length < Least:
		return nil, fmt.Errorf("trouble of %s is too short for all families of faults: want %s or more", cfg.Length, Least)
	case len(cfg.External) < 10 || len(cfg.Pods) < 5 || len(cfg.VMs) < 5:
		return nil, errors.New("want at least 10 External Proxies, 5 of Pods and 5 of VMs")
	}
	p := &Plan{}
	p.dealProcesses(cfg, "kill", kills())
	p.dealProcesses(cfg, "freeze", freezes())
	p.deal(cfg, "surroundings", surroundings(), pause{500 * time.Millisecond, 4 * time.Second})
	p.dealCompute(cfg)
	p.dealProxies(cfg)
	p.dealInstances(cfg)
	p.dealActs(cfg)
	return p, nil
}

// Steps are those of all lanes.
func (p *Plan) Steps() []Step {
	var all []Step
	for _, lane := range p.Lanes {
		all = append(all, lane.Steps...)
	}
	return all
}

// pause bounds what lies between two steps of a lane.
type pause struct{ least, most time.Duration }

// dealer lays out the steps of one lane.
type dealer struct {
	lane   Lane
	random *rand.Rand
	now    time.Duration
	end    time.Duration
	// calms: there are stretches in which those who bring verdicts are left alone.
	calms bool
}

// dealer has randomness of its own: a change of one lane leaves the others as
// they are.
func (p *Plan) dealer(cfg Config, name string) *dealer {
	lane := uint64(len(p.Lanes))
	p.Lanes = append(p.Lanes, Lane{Name: name})
	return &dealer{lane: Lane{Name: name}, random: rand.New(rand.NewPCG(cfg.Seed, lane)), end: cfg.Length}
}

func (p *Plan) done(d *dealer) { p.Lanes[len(p.Lanes)-1] = d.lane }

// deal lays the deck out again and again, each time shuffled, until the time is
// over. No step begins that would not end in time.
func (p *Plan) deal(cfg Config, name string, deck []card, between pause) {
	d := p.dealer(cfg, name)
	for d.round(deck, between) {
	}
	p.done(d)
}

// round lays the deck out once, and returns false when the time was over before.
// The first rounds are played faster if need be: each card must have its turn.
func (d *dealer) round(deck []card, between pause) bool {
	d.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	share := time.Duration(1 << 62)
	if len(d.lane.Steps) == 0 {
		share = d.end / time.Duration(len(deck))
	}
	first := len(d.lane.Steps) == 0
	for _, c := range deck {
		if !first && d.calm(c) {
			d.now += time.Second
			continue
		}
		wait, long := d.between(between.least, between.most), d.between(c.least, c.most)
		if wait+long > share {
			wait = min(wait, share/3)
			long = min(long, share-wait)
		}
		if d.now+wait+long > d.end {
			return false
		}
		d.now += wait
		d.lane.Steps = append(d.lane.Steps, Step{
			At: d.now, For: long, Kind: c.kind, Subject: c.subject, Variant: c.variant, Pick: d.random.Uint64(),
		})
		d.now += long
	}
	return true
}

// between is a random duration in whole milliseconds.
func (d *dealer) between(least, most time.Duration) time.Duration {
	span := int64((most - least) / time.Millisecond)
	return least + time.Duration(d.random.Int64N(span+1))*time.Millisecond
}

func (d *dealer) one(of []string) string { return of[d.random.IntN(len(of))] }
