package ledger

import (
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// A session is remembered for lease.SessionIdle after the end of its last lease,
// wherever that was held.

// sessionsFull says why a request cannot have its session, nil when it can: the
// session is there, or there is room for another.
func (g *Ledger) sessionsFull(req lease.Request) error {
	if req.Session == "" || g.sessions[owned{req.Holder, req.Session}] != nil {
		return nil
	}
	if n, _ := g.holders.size(req.Holder); n < g.limits.Sessions {
		return nil
	}
	return g.SessionsFull(req.Holder)
}

// SessionsFull says that a holder can have no other session, and until when.
func (g *Ledger) SessionsFull(holder string) *lease.LimitError {
	_, first := g.holders.size(holder)
	return &lease.LimitError{Limit: lease.LimitSessions, Most: g.limits.Sessions, FreeAt: first}
}

// bound returns the proxy that the request's session has to stay on, nil when
// it is free to choose.
func (g *Ledger) bound(req lease.Request) *entry {
	s := g.sessions[owned{req.Holder, req.Session}]
	if req.Session == "" || s == nil {
		return nil
	}
	e := g.proxies[s.instance.ProxyUID]
	if e == nil || e.Instance != s.instance || !g.matches(e, req) || e.cools(req.Target) {
		return nil
	}
	return e
}

// sessionOf returns the session of a lease, nil when it has none.
func (g *Ledger) sessionOf(l lease.Lease) *session {
	if l.Session == "" {
		return nil
	}
	return g.sessions[owned{l.Holder, l.Session}]
}

// putSession has a session remembered where and until when it is told.
func (g *Ledger) putSession(x Session) *session {
	name := owned{x.Holder, x.Name}
	s := g.sessions[name]
	if s == nil {
		s = &session{owned: name, instance: x.Instance}
		g.sessions[name] = s
		g.due.add(&s.deadline, s, x.Until, g.holders.of(x.Holder))
		return s
	}
	s.instance = x.Instance
	g.due.move(&s.deadline, x.Until)
	return s
}

// bind has a lease's session go where the lease is.
func (g *Ledger) bind(l lease.Lease) {
	if l.Session == "" {
		return
	}
	x := Session{Holder: l.Holder, Name: l.Session, Instance: l.Instance, Until: l.ExpiresAt.Add(lease.SessionIdle)}
	if s := g.sessionOf(l); s != nil {
		x.Until = latest(x.Until, s.at)
	}
	g.putSession(x)
	g.journal.PutSession(x)
}

// attach notes that a lease that runs is one of its session's.
func (g *Ledger) attach(h *held) {
	if s := g.sessionOf(h.Lease); s != nil {
		s.held = append(s.held, h)
	}
}

// detach notes that a lease runs no longer.
func (g *Ledger) detach(h *held) {
	s := g.sessionOf(h.Lease)
	if s == nil {
		return
	}
	if i := slices.Index(s.held, h); i >= 0 {
		s.held = slices.Delete(s.held, i, i+1)
	}
}

// extend has a session remembered for as long as a lease of it wants, after that
// was prolonged.
func (g *Ledger) extend(l lease.Lease) {
	s, until := g.sessionOf(l), l.ExpiresAt.Add(lease.SessionIdle)
	if s != nil && until.After(s.at) {
		g.due.move(&s.deadline, until)
		g.journal.PutSession(s.record())
	}
}

// shorten has a session remembered for no longer than its other leases want,
// after one of it has ended before its time. Else sessions that were used for a
// moment would be kept for as long as a lease might have run.
func (g *Ledger) shorten(l lease.Lease, now time.Time) {
	s := g.sessionOf(l)
	if s == nil || l.ExpiresAt.Add(lease.SessionIdle).Before(s.at) {
		return // another one runs for longer
	}
	last := now
	for _, h := range s.held {
		last = latest(last, h.ExpiresAt)
	}
	if until := last.Add(lease.SessionIdle); until.Before(s.at) {
		g.due.move(&s.deadline, until)
		g.journal.PutSession(s.record())
	}
}

// dropSession forgets a session.
func (g *Ledger) dropSession(s *session) {
	g.due.remove(&s.deadline)
	g.holders.tidy(s.holder)
	delete(g.sessions, s.owned)
	g.journal.ForgetSession(s.record())
}

func (s *session) record() Session {
	return Session{Holder: s.holder, Name: s.name, Instance: s.instance, Until: s.at}
}
