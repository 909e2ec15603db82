// Package ledger is the state machine of the lease stores: it holds the running
// leases, cooldowns and sessions, and chooses a proxy for each request. It has no
// clock, no lock and no storage; the stores add them.
package ledger

import (
	"cmp"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Record is a lease with the rest of what a store keeps of it.
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

// Session binds a holder's session to the instance that it was last granted.
type Session struct {
	Holder, Name string
	Instance     lease.Instance
	// Until when the session is kept.
	Until time.Time
}

// Journal receives every change, in order, before the call returns that made it.
// An expiry alone is no change; the removal of what has expired is one.
type Journal interface {
	PutLease(Record)
	DeleteLease(Record)
	PutCooldown(Cooldown)
	DeleteCooldown(Cooldown)
	PutSession(Session)
	DeleteSession(Session)
}

// Ledger holds the state. It is not safe for concurrent use. Its methods take the
// time, which must not go back; what has ended by then does not count.
type Ledger struct {
	cooldown   time.Duration
	limits     lease.Limits
	journal    Journal
	fence      uint64
	revision   uint64
	fleetKnown bool      // Offer was called
	now        time.Time // of the last call

	proxies  map[string]*proxy // offered ones, by Proxy UID
	index    index
	stats    statsCache
	detached map[lease.Instance]*leaseSet // leases of instances that are not offered
	leases   map[string]*activeLease      // running ones, by id
	byFence  byFence                      // the same in order
	keys     map[scopedName]*activeLease  // by idempotency key
	expired  map[string]*expiredLease     // leases that still take reports, by id
	sessions map[scopedName]*session

	cooldowns       map[string]map[string]*cooldown // by Proxy UID, then target
	deadlines       deadlines                       // of running leases, cooldowns and sessions
	holderSessions  groups                          // sessions by holder
	targetCooldowns groups                          // cooldowns for single targets, by Proxy UID
}

// proxy is a Proxy that the fleet offers. The fields that an acquire reads come
// first: with 100,000 proxies most of the time is memory access.
type proxy struct {
	leaseSet
	lastGrant uint64               // fencing token, 0 when none is known
	class     int                  // of latency
	room      int                  // most leases at once, 0 while it is not leasable
	cooldowns map[string]*cooldown // of the Proxy, by target
	// Instance and Proxy are copies of the Offer's, which is elsewhere in memory.
	lease.Instance
	Proxy string
	*lease.Offer
	items []*item // in views
}

// activeLease is a lease that has not expired.
type activeLease struct {
	Record
	deadline
	proxy *proxy // that offers its instance, nil when none does
	index int    // in its leaseSet
}

// cooldown ends at its deadline.
type cooldown struct {
	deadline
	proxyUID, target string
}

// session is dropped at its deadline.
type session struct {
	deadline
	scopedName
	instance lease.Instance
	leases   []*activeLease // granted in it, on any proxy
}

// scopedName is a name that one holder chose.
type scopedName struct{ holder, name string }

// New returns an empty ledger without a fleet and with lease.DefaultLimits.
// Cooldowns take cooldown or a part of it, and an expired lease takes reports for
// as long; 0 disables both. Fencing tokens start above fence. Journal may be nil.
func New(cooldown time.Duration, fence uint64, journal Journal) *Ledger {
	if journal == nil {
		journal = discard{}
	}
	g := &Ledger{
		cooldown: cooldown, limits: lease.DefaultLimits, journal: journal, fence: fence,
		proxies: map[string]*proxy{}, index: newIndex(),
	}
	g.clear()
	return g
}

// SetLimits replaces lease.DefaultLimits. It removes nothing.
func (g *Ledger) SetLimits(l lease.Limits) { g.limits = l }

// FirstFence is where fencing tokens start when no earlier one is known: the time in
// microseconds since 1970. No store sustains a million grants a second, so tokens
// grow even when all state is lost.
func FirstFence(now time.Time) uint64 { return uint64(max(0, now.UnixMicro())) }

// Fence is the last fencing token granted.
func (g *Ledger) Fence() uint64 { return g.fence }

// Revision grows with every change, and with every deadline that passes.
func (g *Ledger) Revision() uint64 { return g.revision }

// Usage counts running leases and lists the cooldowns for all targets.
func (g *Ledger) Usage(now time.Time) lease.Usage {
	g.Advance(now)
	u := lease.Usage{
		Revision:     g.revision,
		Active:       make(map[lease.Instance]int, len(g.detached)),
		CoolingUntil: map[string]time.Time{},
		Expired:      len(g.expired),
		Sessions:     len(g.sessions),
		Cooldowns:    g.deadlines[ofCooldown].Len() + g.deadlines[ofTargetCooldown].Len(),
	}
	for _, p := range g.proxies {
		if len(p.leases) > 0 {
			u.Active[p.Instance] = len(p.leases)
		}
	}
	for instance, x := range g.detached {
		u.Active[instance] = len(x.leases)
	}
	for uid, targets := range g.cooldowns {
		if c := targets[""]; c != nil {
			u.CoolingUntil[uid] = c.at
		}
	}
	return u
}

// discard is the journal of ledgers that need none.
type discard struct{}

func (discard) PutLease(Record)         {}
func (discard) DeleteLease(Record)      {}
func (discard) PutCooldown(Cooldown)    {}
func (discard) DeleteCooldown(Cooldown) {}
func (discard) PutSession(Session)      {}
func (discard) DeleteSession(Session)   {}

// State is what outlives a process.
type State struct {
	Leases    []Record
	Cooldowns []Cooldown
	Sessions  []Session
	// Fence is at least the token of every lease that was granted.
	Fence uint64
}

// Reset replaces what the ledger holds by a state. It keeps the fleet and the larger
// fencing token, and writes nothing to the journal.
func (g *Ledger) Reset(s State) {
	g.fence = max(g.fence, s.Fence)
	g.clear()
	for _, x := range s.Sessions { // before their leases
		g.putSession(x)
	}
	slices.SortFunc(s.Leases, func(a, b Record) int { return cmp.Compare(a.FencingToken, b.FencingToken) })
	for _, r := range s.Leases {
		g.fence = max(g.fence, r.FencingToken)
		g.insert(&activeLease{Record: r})
	}
	for _, c := range s.Cooldowns {
		g.addCooldown(c)
	}
	g.revision++
}

// clear drops all state but the fleet.
func (g *Ledger) clear() {
	limits := g.index.limits
	g.index = newIndex()
	g.index.limits = limits
	g.stats.clear()
	for _, p := range g.proxies {
		p.items, p.leases, p.cooldowns = nil, nil, nil
	}
	g.detached = map[lease.Instance]*leaseSet{}
	g.leases, g.keys, g.byFence = map[string]*activeLease{}, map[scopedName]*activeLease{}, byFence{}
	g.expired = map[string]*expiredLease{}
	g.sessions, g.cooldowns = map[scopedName]*session{}, map[string]map[string]*cooldown{}
	g.deadlines, g.holderSessions, g.targetCooldowns = deadlines{}, groups{}, groups{}
}

// State returns what outlives the process, in no order.
func (g *Ledger) State() State {
	s := State{Fence: g.fence}
	for _, l := range g.leases {
		s.Leases = append(s.Leases, l.Record)
	}
	for _, x := range g.expired {
		s.Leases = append(s.Leases, g.expiredRecord(x))
	}
	for uid, targets := range g.cooldowns {
		for target, c := range targets {
			s.Cooldowns = append(s.Cooldowns, Cooldown{ProxyUID: uid, Target: target, Until: c.at})
		}
	}
	for _, x := range g.sessions {
		s.Sessions = append(s.Sessions, x.record())
	}
	return s
}
