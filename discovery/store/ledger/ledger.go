// Package ledger is the state machine behind lease stores: which leases run,
// which proxies cool, who gets which. It knows no clock and no lock, and keeps
// nothing beyond the process: stores put those around it.
package ledger

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Record is a lease with what else has to be kept of it.
type Record struct {
	lease.Lease
	// Key and Fingerprint of the request.
	Key, Fingerprint string
}

// Cooldown keeps a Proxy from being leased for a target, or for all ("").
type Cooldown struct {
	ProxyUID, Target string
	Until            time.Time
}

// Session is a session's place: the instance that it was last granted.
type Session struct {
	Holder, Name string
	Instance     lease.Instance
	// Until when it is remembered.
	Until time.Time
}

// Journal is told of every change, in order, before the call returns that made
// it. Deadlines that pass are no change, but what is forgotten then is told.
type Journal interface {
	PutLease(Record)
	ForgetLease(Record)
	PutCooldown(Cooldown)
	ForgetCooldown(Cooldown)
	PutSession(Session)
	ForgetSession(Session)
}

// Ledger holds the state. Its methods must be called one at a time. They take
// the time, which must not go back; what has ended by then does not count.
type Ledger struct {
	window   time.Duration
	limits   lease.Limits
	journal  Journal
	fence    uint64
	revision uint64
	told     bool      // the fleet is known
	now      time.Time // of the last call
	epoch    uint64    // token from which on grants are told apart

	proxies  map[string]*entry // by Proxy UID: offered ones
	index    index
	refusals refusals
	stranded map[lease.Instance]*holding // of instances that are not offered
	leases   map[string]*held            // that run
	expired  memories                    // that still take reports
	roll     roll                        // of leases
	keys     map[owned]*held             // of leases
	sessions map[owned]*session
	cooling  map[string]map[string]*cooldown // by Proxy UID, then target
	due      calendar                        // of every lease, cooldown and session above
	holders  groups                          // of sessions
	resting  groups                          // of cooldowns for single targets, by Proxy UID
}

// entry is a Proxy that the fleet has told of. What an acquire looks at lies side by
// side, at the beginning: at 100,000 proxies it is the memory that takes the time.
type entry struct {
	holding
	since   uint64               // the last grant, as Ledger.granted counts it
	class   int32                // of latency
	room    int32                // leases that may run at once, 0 while it is not leasable
	cooling map[string]*cooldown // of the Proxy, by target
	// Instance and Proxy are the Offer's, which is elsewhere.
	lease.Instance
	Proxy string
	*lease.Offer
	places []place  // in views
	near   [6]place // where the first places are, beside the rest
}

// held is a lease that runs, and its place among the deadlines.
type held struct {
	Record
	deadline
	entry *entry // that offers its instance, nil when none does
	place int    // in its holding
}

// cooldown ends at its deadline.
type cooldown struct {
	deadline
	proxyUID, target string
}

// session is forgotten at its deadline.
type session struct {
	deadline
	owned
	instance lease.Instance
	held     []*held // its leases that run, wherever
}

// owned is a name that one holder chose.
type owned struct{ holder, name string }

// New returns an empty ledger that knows no fleet. Cooldowns take parts of
// window, and an expired lease takes reports for as long; 0 switches both off.
// Fencing tokens start above fence. Journal may be nil. Its limits are
// lease.DefaultLimits.
func New(window time.Duration, fence uint64, journal Journal) *Ledger {
	if journal == nil {
		journal = nowhere{}
	}
	return &Ledger{
		window: window, limits: lease.DefaultLimits, journal: journal, fence: fence, epoch: fence,
		proxies:  map[string]*entry{},
		index:    newIndex(),
		stranded: map[lease.Instance]*holding{},
		leases:   map[string]*held{},
		expired:  newMemories(),
		keys:     map[owned]*held{},
		sessions: map[owned]*session{},
		cooling:  map[string]map[string]*cooldown{},
		holders:  groups{},
		resting:  groups{},
	}
}

// Limit sets limits other than lease.DefaultLimits. What is there already stays.
func (g *Ledger) Limit(l lease.Limits) { g.limits = l }

// FirstFence is where fencing tokens start when nothing is known of earlier
// ones: the time in microseconds. No store grants a million leases a second for
// long, so that tokens keep growing when all else is lost.
func FirstFence(now time.Time) uint64 { return uint64(max(0, now.UnixMicro())) }

// Fence is the last fencing token given.
func (g *Ledger) Fence() uint64 { return g.fence }

// Revision grows with every change, and with every deadline that Advance sees
// pass.
func (g *Ledger) Revision() uint64 { return g.revision }

// Offer takes a change of the fleet. The first one tells all of it.
func (g *Ledger) Offer(offers lease.Offers) {
	g.told = true
	g.refusals.forget()
	for _, o := range offers.Changed {
		g.offered(o)
	}
	for _, uid := range offers.Gone {
		if e := g.proxies[uid]; e != nil {
			g.exit(e)
			g.strand(e)
			delete(g.proxies, uid)
		}
	}
	if len(offers.Changed)+len(offers.Gone) > 0 {
		g.revision++
	}
}

// Usage counts running leases and lists the cooldowns for all targets.
func (g *Ledger) Usage(now time.Time) lease.Usage {
	g.Advance(now)
	u := lease.Usage{
		Revision:     g.revision,
		Active:       make(map[lease.Instance]int, len(g.stranded)),
		CoolingUntil: map[string]time.Time{},
		Expired:      len(g.expired.byID),
		Sessions:     len(g.sessions),
		Cooldowns:    len(g.due[ofCooldown]) + len(g.due[ofTargetCooldown]),
	}
	for _, e := range g.proxies {
		if len(e.held) > 0 {
			u.Active[e.Instance] = len(e.held)
		}
	}
	for instance, x := range g.stranded {
		u.Active[instance] = len(x.held)
	}
	for uid, targets := range g.cooling {
		if c := targets[""]; c != nil {
			u.CoolingUntil[uid] = c.at
		}
	}
	return u
}

// nowhere is the journal of ledgers that need none.
type nowhere struct{}

func (nowhere) PutLease(Record)         {}
func (nowhere) ForgetLease(Record)      {}
func (nowhere) PutCooldown(Cooldown)    {}
func (nowhere) ForgetCooldown(Cooldown) {}
func (nowhere) PutSession(Session)      {}
func (nowhere) ForgetSession(Session)   {}
