package storetest

import (
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// model is the rules of a lease store written down as plainly as possible:
// lists that are searched from end to end, and nothing ever thrown away.
type model struct {
	offers   map[string]*lease.Offer // by Proxy UID
	leases   []lease.Lease
	released map[string]bool
	cools    map[[2]string]time.Time // by Proxy UID and target
	sessions map[string]place
	fresh    map[string]uint64 // by Proxy UID: grants before count no more, since the Proxy was gone
}

// place is where a session is, and until when.
type place struct {
	lease.Instance
	until time.Time
}

func newModel() *model {
	return &model{
		offers: map[string]*lease.Offer{}, released: map[string]bool{},
		cools: map[[2]string]time.Time{}, sessions: map[string]place{}, fresh: map[string]uint64{},
	}
}

func (m *model) active(i lease.Instance, now time.Time) (ends []time.Time) {
	for _, l := range m.leases {
		if l.Instance == i && !m.released[l.ID] && now.Before(l.ExpiresAt) {
			ends = append(ends, l.ExpiresAt)
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	return ends
}

func (m *model) standing(o *lease.Offer, now time.Time) lease.Standing {
	s := lease.Standing{Candidate: &o.Candidate, Active: len(m.active(o.Instance, now))}
	for _, l := range m.leases {
		if l.Instance.ProxyUID == o.ProxyUID && l.FencingToken > m.fresh[o.ProxyUID] {
			s.LastGrant = l.FencingToken
		}
	}
	return s
}

func (m *model) coolsUntil(uid, target string, now time.Time) time.Time {
	until := m.cools[[2]string{uid, ""}]
	if u := m.cools[[2]string{uid, target}]; u.After(until) {
		until = u
	}
	if !now.Before(until) {
		return time.Time{}
	}
	return until
}

// matching lists what may be granted, busy or not. For a session that has a
// place that is the place alone, unless it has to leave.
func (m *model) matching(req lease.Request, now time.Time) []*lease.Offer {
	var out []*lease.Offer
	for _, o := range m.offers {
		if o.Leasable && lease.HasAttributes(o.Attributes, req.Selector) && !slices.Contains(req.Exclude, o.Proxy) {
			out = append(out, o)
		}
	}
	p, ok := m.sessions[req.Session]
	if req.Session == "" || !ok || !now.Before(p.until) {
		return out
	}
	for _, o := range out {
		if o.Instance == p.Instance && m.coolsUntil(o.ProxyUID, req.Target, now).IsZero() {
			return []*lease.Offer{o}
		}
	}
	return out
}

// acquire returns what may be granted now, best first, or why there is nothing.
func (m *model) acquire(req lease.Request, now time.Time) ([]lease.Standing, lease.Stats) {
	var free []lease.Standing
	stats := lease.Stats{}
	for _, o := range m.matching(req, now) {
		stats.Considered++
		s, cooled := m.standing(o, now), m.coolsUntil(o.ProxyUID, req.Target, now)
		var room time.Time
		if ends := m.active(o.Instance, now); len(ends) >= o.MaxLeases && o.MaxLeases > 0 {
			room = ends[len(ends)-o.MaxLeases]
		}
		switch {
		case s.Active < o.MaxLeases && cooled.IsZero():
			free = append(free, s)
		case cooled.IsZero():
			stats.CountAtCapacity(room)
		case o.MaxLeases <= 0:
			stats.CountInCooldown(time.Time{})
		case room.After(cooled):
			stats.CountInCooldown(room)
		default:
			stats.CountInCooldown(cooled)
		}
	}
	if len(free) > 0 {
		stats = lease.Stats{}
	}
	slices.SortFunc(free, lease.Compare)
	return free, stats
}

func (m *model) gone(uid string) {
	delete(m.offers, uid)
	if n := len(m.leases); n > 0 {
		m.fresh[uid] = m.leases[n-1].FencingToken
	}
}

func (m *model) granted(l lease.Lease) {
	m.leases = append(m.leases, l)
	m.settle(l, l.GrantedAt)
}

// settle notes where a lease's session is.
func (m *model) settle(l lease.Lease, now time.Time) {
	if l.Session != "" {
		m.sessions[l.Session] = place{l.Instance, m.lastEnd(l.Session, now).Add(lease.SessionIdle)}
	}
}

// lastEnd is when the last of a session's leases that run ends, now if none does.
func (m *model) lastEnd(session string, now time.Time) time.Time {
	last := now
	for _, l := range m.leases {
		if l.Session == session && !m.released[l.ID] && l.ExpiresAt.After(last) {
			last = l.ExpiresAt
		}
	}
	return last
}

// sessionsFull says when there is room for a new session, zero when there is.
func (m *model) sessionsFull(session string, now time.Time) (free time.Time) {
	if session == "" || now.Before(m.sessions[session].until) {
		return time.Time{}
	}
	n := 0
	for _, p := range m.sessions {
		if now.Before(p.until) {
			n++
			if free.IsZero() || p.until.Before(free) {
				free = p.until
			}
		}
	}
	if n < Limits().Sessions {
		return time.Time{}
	}
	return free
}

func (m *model) release(id string, now time.Time) {
	l := m.find(id, now)
	m.released[id] = true
	if l == nil || l.Session == "" || !now.Before(l.ExpiresAt) {
		return
	}
	p := m.sessions[l.Session]
	p.until = m.lastEnd(l.Session, now).Add(lease.SessionIdle)
	m.sessions[l.Session] = p
}

// find returns a lease that is remembered, nil when there is none.
func (m *model) find(id string, now time.Time) *lease.Lease {
	i := slices.IndexFunc(m.leases, func(l lease.Lease) bool { return l.ID == id })
	if i < 0 || m.released[id] || !now.Before(m.leases[i].ExpiresAt.Add(Window)) {
		return nil
	}
	return &m.leases[i]
}

// ended says why a lease cannot be used.
func (m *model) ended(l *lease.Lease, now time.Time) lease.EndReason {
	if !now.Before(l.ExpiresAt) {
		return lease.EndExpired
	}
	return lease.Ended(*l, m.offers[l.Instance.ProxyUID])
}

func (m *model) renew(id string, ttl time.Duration, now time.Time) (lease.Lease, error) {
	l := m.find(id, now)
	if l == nil {
		return lease.Lease{}, lease.ErrUnknown
	}
	if reason := m.ended(l, now); reason != "" {
		return lease.Lease{}, &lease.EndedError{Reason: reason, Lease: *l}
	}
	if until := now.Add(ttl); until.After(l.ExpiresAt) {
		l.ExpiresAt, l.TTL = until, ttl
		if p := m.sessions[l.Session]; l.Session != "" {
			p.until = m.lastEnd(l.Session, now).Add(lease.SessionIdle)
			m.sessions[l.Session] = p
		}
	}
	return *l, nil
}

func (m *model) report(id string, rep lease.Report, now time.Time) error {
	l := m.find(id, now)
	if l == nil {
		return lease.ErrUnknown
	}
	target, length := rep.Cooldown(l.Target, Window)
	if length <= 0 {
		return nil
	}
	key := [2]string{l.Instance.ProxyUID, target}
	if full := m.targetsFull(key, now); full != nil {
		return full
	}
	if until := now.Add(length); until.After(m.cools[key]) {
		m.cools[key] = until
	}
	return nil
}

// targetsFull says why there is no room for a cooldown, nil when there is.
func (m *model) targetsFull(key [2]string, now time.Time) error {
	if key[1] == "" || now.Before(m.cools[key]) {
		return nil
	}
	var ofProxy, all []time.Time
	for k, until := range m.cools {
		if k[1] == "" || !now.Before(until) {
			continue
		}
		all = append(all, until)
		if k[0] == key[0] {
			ofProxy = append(ofProxy, until)
		}
	}
	limits := Limits()
	switch {
	case len(ofProxy) >= limits.TargetsPerProxy:
		return &lease.LimitError{Limit: lease.LimitTargetsPerProxy, Most: limits.TargetsPerProxy, FreeAt: slices.MinFunc(ofProxy, time.Time.Compare)}
	case len(all) >= limits.Targets:
		return &lease.LimitError{Limit: lease.LimitTargets, Most: limits.Targets, FreeAt: slices.MinFunc(all, time.Time.Compare)}
	}
	return nil
}

// counts is how many sessions are remembered, and how many cooldowns under way.
func (m *model) counts(now time.Time) (sessions, cooldowns int) {
	for _, p := range m.sessions {
		if now.Before(p.until) {
			sessions++
		}
	}
	for _, until := range m.cools {
		if now.Before(until) {
			cooldowns++
		}
	}
	return sessions, cooldowns
}

func (m *model) endCooldowns(uid, target string, now time.Time) (ended int) {
	for key, until := range m.cools {
		if key[0] != uid || target != "" && key[1] != target {
			continue
		}
		if now.Before(until) {
			ended++
		}
		delete(m.cools, key)
	}
	return ended
}
