package storetest

import (
	"cmp"
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

// matching lists what may be granted, busy or not. For a session that has a
// place that is the place alone, unless it has to leave.
func (m *model) matching(req lease.Request, now time.Time) []*lease.Offer {
	var out []*lease.Offer
	for _, o := range m.offers {
		if o.Leasable && req.Matches(o.Attributes, o.Scheme) && !slices.Contains(req.Exclude, o.Proxy) {
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
	m.keepSession(l.Session, l.Instance, l.GrantedAt)
}

// keepSession notes where a session is: until an idle time after the last of its
// active leases ends, after now if it has none.
func (m *model) keepSession(session string, where lease.Instance, now time.Time) {
	if session == "" {
		return
	}
	last := now
	for _, l := range m.leases {
		if l.Session == session && !m.released[l.ID] && l.ExpiresAt.After(last) {
			last = l.ExpiresAt
		}
	}
	m.sessions[session] = place{where, last.Add(lease.SessionIdle)}
}

// sessionsFull is when a new session is allowed, zero when it is now.
func (m *model) sessionsFull(session string, now time.Time) (free time.Time) {
	if session == "" || now.Before(m.sessions[session].until) {
		return time.Time{}
	}
	ends := m.sessionEnds(now)
	if len(ends) < Limits().Sessions {
		return time.Time{}
	}
	return slices.MinFunc(ends, time.Time.Compare)
}

func (m *model) sessionEnds(now time.Time) (ends []time.Time) {
	for _, p := range m.sessions {
		if now.Before(p.until) {
			ends = append(ends, p.until)
		}
	}
	return ends
}

func (m *model) release(id string, now time.Time) {
	l := m.find(id, now)
	m.released[id] = true
	if l != nil && now.Before(l.ExpiresAt) {
		m.keepSession(l.Session, m.sessions[l.Session].Instance, now)
	}
}

// find returns a lease, running or expired, nil when there is none.
func (m *model) find(id string, now time.Time) *lease.Lease {
	i := slices.IndexFunc(m.leases, func(l lease.Lease) bool { return l.ID == id })
	if i < 0 || m.released[id] || !now.Before(m.leases[i].ExpiresAt.Add(Window)) {
		return nil
	}
	return &m.leases[i]
}

// expire evicts those that expired before Limits().Expired others.
func (m *model) expire(now time.Time) {
	expired := m.expired(now)
	slices.SortFunc(expired, func(a, b lease.Lease) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	for _, l := range expired[:max(0, len(expired)-Limits().Expired)] {
		m.released[l.ID] = true // as good as that
	}
}

// expired lists the expired leases that still accept reports.
func (m *model) expired(now time.Time) (out []lease.Lease) {
	for _, l := range m.leases {
		if m.find(l.ID, now) != nil && !now.Before(l.ExpiresAt) {
			out = append(out, l)
		}
	}
	return out
}

// ended is why a lease cannot be used.
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
		m.keepSession(l.Session, m.sessions[l.Session].Instance, now)
	}
	return *l, nil
}
