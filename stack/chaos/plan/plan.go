// Package plan decides which faults a campaign injects, and when. It is pure: the
// same seed, length and fleet give the same steps, so that a campaign can be
// repeated.
package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

const (
	Least = 60 * time.Second // the shortest fault stage in which every kind of fault fits

	slowRecovery = 2 * time.Minute // the longest time until the system has recovered from a slow card

	// In each cycle after the first round, the last part (calm) leaves the processes
	// alone through which verdicts reach the crawlers. While one of them is away, and
	// for some time after, a lease on a dead proxy breaks no promise: without a calm
	// that promise would never be checked.
	cycle = 150 * time.Second
	calm  = 90 * time.Second
)

// Step is one fault, or one action of a user.
type Step struct {
	// At is the offset from the start of the fault stage. For is the duration, 0 for
	// actions.
	At, For time.Duration
	Kind    history.Family
	Subject string // a process or the name of a Proxy, "" where there is only one
	Variant string // such as "stockout"
	Pick    uint64 // a random number for all further choices
}

// String is the step in a log line.
func (s Step) String() string {
	text := fmt.Sprintf("%7.1fs %s", s.At.Seconds(), s.Kind)
	if s.Subject != "" {
		text += " " + s.Subject
	}
	if s.Variant != "" {
		text += " " + s.Variant
	}
	if s.For > 0 {
		text += fmt.Sprintf(" for %.1fs", s.For.Seconds())
	}
	return text
}

// Lane is a sequence of steps that do not overlap, in the order of At.
type Lane struct {
	Name  string
	Steps []Step
}

// Config is what there is to break. All fields are required.
type Config struct {
	Seed                uint64        // of all random choices
	Length              time.Duration // of the fault stage
	External, Pods, VMs []string      // names of the Proxies of each kind
}

// Plan is all steps. Steps of different lanes overlap.
type Plan struct {
	Lanes []Lane
}

// New returns the plan of a seed.
func New(cfg Config) (*Plan, error) {
	switch {
	case cfg.Length < Least:
		return nil, fmt.Errorf("a fault stage of %s is too short for all kinds of faults: want %s or more", cfg.Length, Least)
	case len(cfg.External) < 10 || len(cfg.Pods) < 5 || len(cfg.VMs) < 5:
		return nil, errors.New("want at least 10 External Proxies, 5 of Pods and 5 of VMs")
	}
	p := &Plan{}
	p.deal(cfg, "kill", kills, nil, time.Second, 5*time.Second)
	p.deal(cfg, "freeze", freezes, nil, time.Second, 5*time.Second)
	p.deal(cfg, "surroundings", surroundings, nil, 500*time.Millisecond, 4*time.Second)
	p.compute(cfg)
	p.proxies(cfg)
	p.instances(cfg)
	p.acts(cfg)
	return p, nil
}

// Steps returns the steps of all lanes.
func (p *Plan) Steps() []Step {
	var all []Step
	for _, lane := range p.Lanes {
		all = append(all, lane.Steps...)
	}
	return all
}

// dealer lays out the steps of one lane.
type dealer struct {
	lane     Lane
	random   *rand.Rand
	now, end time.Duration
	// least and most bound the time between two steps.
	least, most time.Duration
}

// dealer has its own randomness: a change of one lane leaves the others as they are.
func (p *Plan) dealer(cfg Config, name string) *dealer {
	lane := uint64(len(p.Lanes))
	p.Lanes = append(p.Lanes, Lane{Name: name})
	return &dealer{lane: Lane{Name: name}, random: rand.New(rand.NewPCG(cfg.Seed, lane)), end: cfg.Length}
}

func (p *Plan) done(d *dealer) { p.Lanes[len(p.Lanes)-1] = d.lane }

// deal plays the deck repeatedly, shuffled each time, until the time is over, with pauses
// between least and most. Each step ends in time, and has a random one of the subjects
// if there are any.
func (p *Plan) deal(cfg Config, name string, deck []card, subjects []string, least, most time.Duration) {
	d := p.dealer(cfg, name)
	d.least, d.most = least, most
	for d.round(deck) {
	}
	for i := range d.lane.Steps {
		if subjects != nil {
			d.lane.Steps[i].Subject = d.one(subjects)
		}
	}
	p.done(d)
}

// round plays the deck once, and returns false when the time is over before. The first
// round plays every card, shortened if necessary, and the slow ones first: the system
// recovers from them while other faults happen. Later rounds skip the slow cards that
// would delay the recovery at the end.
func (d *dealer) round(deck []card) bool {
	deck = slices.Clone(deck)
	d.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	first, share := len(d.lane.Steps) == 0, time.Duration(1<<62)
	if first {
		share = d.end / time.Duration(len(deck))
		slices.SortStableFunc(deck, func(a, b card) int { return b.slow() - a.slow() })
	}
	for _, c := range deck {
		if !first && (d.calm(c) || c.slow() > 0 && d.now > d.end-slowRecovery) {
			d.now += time.Second
			continue
		}
		wait, long := d.between(d.least, d.most), d.between(c.least, c.most)
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
	return d.now < d.end
}

// calm reports whether a card would disturb a calm.
func (d *dealer) calm(c card) bool {
	return d.now%cycle >= cycle-calm && slices.Contains(verdictPath, c.subject)
}

// between returns a random duration in whole milliseconds.
func (d *dealer) between(least, most time.Duration) time.Duration {
	span := int64((most - least) / time.Millisecond)
	return least + time.Duration(d.random.Int64N(span+1))*time.Millisecond
}

func (d *dealer) one(of []string) string { return of[d.random.IntN(len(of))] }
