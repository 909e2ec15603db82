package ledger

import (
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// A session is kept for lease.SessionIdle after the end of its last lease, on any
// proxy.

// checkSessionLimit returns an error when the request needs a new session and its
// holder has as many as allowed.
func (g *Ledger) checkSessionLimit(req lease.Request) error {
	if req.Session == "" || g.sessions[scopedName{req.Holder, req.Session}] != nil {
		return nil
	}
	if n, _ := g.holderSessions.size(req.Holder); n < g.limits.Sessions {
		return nil
	}
	return g.SessionLimitError(req.Holder)
}

// SessionLimitError is the error for a holder that has all its sessions.
func (g *Ledger) SessionLimitError(holder string) *lease.LimitError {
	_, first := g.holderSessions.size(holder)
	return &lease.LimitError{Limit: lease.LimitSessions, Most: g.limits.Sessions, FreeAt: first}
}

// sessionProxy returns the proxy that the request's session stays on, nil when any
// may be chosen.
func (g *Ledger) sessionProxy(req lease.Request) *proxy {
	s := g.sessions[scopedName{req.Holder, req.Session}]
	if req.Session == "" || s == nil {
		return nil
	}
	p := g.offeredAs(s.instance)
	if p == nil || !matches(p, req) || p.coolsFor(req.Target) {
		return nil
	}
	return p
}

// sessionOf returns the session of a lease, nil when it has none.
func (g *Ledger) sessionOf(l lease.Lease) *session {
	if l.Session == "" {
		return nil
	}
	return g.sessions[scopedName{l.Holder, l.Session}]
}

// putSession adds a session, or moves the one there is.
func (g *Ledger) putSession(x Session) {
	name := scopedName{x.Holder, x.Name}
	if s := g.sessions[name]; s != nil {
		s.instance = x.Instance
		g.deadlines.move(&s.deadline, x.Until)
		return
	}
	s := &session{scopedName: name, instance: x.Instance}
	g.sessions[name] = s
	g.deadlines.add(&s.deadline, s, x.Until, g.holderSessions.group(x.Holder))
}

// bindSession moves a lease's session to the lease's instance.
func (g *Ledger) bindSession(l lease.Lease) {
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

// removeFromSession is called when a lease has ended.
func (g *Ledger) removeFromSession(l *activeLease) {
	s := g.sessionOf(l.Lease)
	if s == nil {
		return
	}
	if i := slices.Index(s.leases, l); i >= 0 {
		s.leases = slices.Delete(s.leases, i, i+1)
	}
}

// extendSession keeps the session of a renewed lease for as long as that needs it.
func (g *Ledger) extendSession(l lease.Lease) {
	s, until := g.sessionOf(l), l.ExpiresAt.Add(lease.SessionIdle)
	if s != nil && until.After(s.at) {
		g.moveSession(s, until)
	}
}

// shortenSession keeps the session of a released lease only for as long as its
// other leases need it. Otherwise a session that was used for a moment would be
// kept for as long as its lease might have run.
func (g *Ledger) shortenSession(l lease.Lease) {
	s := g.sessionOf(l)
	if s == nil || l.ExpiresAt.Add(lease.SessionIdle).Before(s.at) {
		return // another lease runs for longer
	}
	last := g.now
	for _, other := range s.leases {
		last = latest(last, other.ExpiresAt)
	}
	if until := last.Add(lease.SessionIdle); until.Before(s.at) {
		g.moveSession(s, until)
	}
}

func (g *Ledger) moveSession(s *session, until time.Time) {
	g.deadlines.move(&s.deadline, until)
	g.journal.PutSession(s.record())
}

func (g *Ledger) removeSession(s *session) {
	g.deadlines.remove(&s.deadline)
	g.holderSessions.tidy(s.holder)
	delete(g.sessions, s.scopedName)
	g.journal.DeleteSession(s.record())
}

func (s *session) record() Session {
	return Session{Holder: s.holder, Name: s.name, Instance: s.instance, Until: s.at}
}
