package memory

import (
	"container/heap"
	"time"
)

// deadline is embedded in whatever ends by itself.
type deadline struct {
	at    time.Time
	index int
	owner any // the *held or *cooldown that embeds it
}

// deadlines is a heap with the next deadline first.
type deadlines []*deadline

func (d *deadlines) add(x *deadline, owner any, at time.Time) {
	x.owner, x.at = owner, at
	heap.Push(d, x)
}

func (d *deadlines) remove(x *deadline) { heap.Remove(d, x.index) }

func (d *deadlines) postpone(x *deadline, at time.Time) {
	x.at = at
	heap.Fix(d, x.index)
}

// Len, Less, Swap, Push and Pop make it a heap.Interface.
func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push is for package heap.
func (d *deadlines) Push(x any) {
	e := x.(*deadline)
	e.index = len(*d)
	*d = append(*d, e)
}

// Pop is for package heap.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return e
}

// advance brings the store to now. Every method calls it first, so that what
// has ended never counts, whether or not anything swept.
func (s *Store) advance(now time.Time) {
	for len(s.due) > 0 && !s.due[0].at.After(now) {
		switch o := s.due[0].owner.(type) {
		case *held:
			s.lapse(o, now)
		case *cooldown:
			s.due.remove(&o.deadline)
			s.warm(o)
		}
	}
}

// lapse ends a lease that has expired, or forgets one that expired a cooldown
// window ago.
func (s *Store) lapse(h *held, now time.Time) {
	s.stop(h)
	if forgetAt := h.ExpiresAt.Add(s.window); forgetAt.After(now) {
		s.due.postpone(&h.deadline, forgetAt)
		return
	}
	s.due.remove(&h.deadline)
	delete(s.leases, h.ID)
}

// stop makes a lease count no longer.
func (s *Store) stop(h *held) {
	if !h.running {
		return
	}
	h.running = false
	delete(s.running[h.Instance], h)
	if len(s.running[h.Instance]) == 0 {
		delete(s.running, h.Instance)
	}
}

// cool starts a cooldown, or prolongs the one there is.
func (s *Store) cool(proxyUID, target string, until time.Time) {
	if c := s.cooling[proxyUID][target]; c != nil {
		if until.After(c.at) {
			s.due.postpone(&c.deadline, until)
		}
		return
	}
	if s.cooling[proxyUID] == nil {
		s.cooling[proxyUID] = map[string]*cooldown{}
	}
	c := &cooldown{proxyUID: proxyUID, target: target}
	s.cooling[proxyUID][target] = c
	s.due.add(&c.deadline, c, until)
}

// warm forgets a cooldown.
func (s *Store) warm(c *cooldown) {
	delete(s.cooling[c.proxyUID], c.target)
	if len(s.cooling[c.proxyUID]) == 0 {
		delete(s.cooling, c.proxyUID)
	}
}
