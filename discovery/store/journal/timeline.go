package journal

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// timeline turns moments into what the file holds of them. It begins at the wall
// time at which the store was opened, and goes on as the monotonic clock does:
// whoever sets the wall clock while the store runs makes no lease longer or
// shorter, in this run or in the next.
type timeline struct{ epoch time.Time }

// nanos is a moment on the timeline, in nanoseconds since 1970.
func (l timeline) nanos(t time.Time) int64 { return l.epoch.UnixNano() + int64(t.Sub(l.epoch)) }

// at is a moment that a file holds. It says nothing to the clocks of this run: see
// stored.resume.
func at(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }

// resume has what a file holds go on at the moment now, and returns for how long
// there was no store, by the wall clock. Whatever had not ended when the store was
// last alive has as much time left as it had then: its holder could not renew it
// meanwhile. No clock that was set between two runs gives it more or takes any.
// What had ended stays over.
func (s *stored) resume(line timeline, now time.Time) time.Duration {
	here := at(line.nanos(now))
	if s.alive.IsZero() {
		s.alive = here
	}
	outage := here.Sub(s.alive)
	move := func(end *time.Time) {
		from := here
		if outage < 0 || end.After(s.alive) {
			from = s.alive
		}
		*end = now.Add(end.Sub(from)) // with a monotonic reading, if now has one
	}
	eachDeadline(&s.State, move)
	return outage
}

// eachDeadline calls f with every moment at which something ends.
func eachDeadline(s *ledger.State, f func(*time.Time)) {
	for i := range s.Leases {
		f(&s.Leases[i].ExpiresAt)
	}
	for i := range s.Cooldowns {
		f(&s.Cooldowns[i].Until)
	}
	for i := range s.Sessions {
		f(&s.Sessions[i].Until)
	}
}
