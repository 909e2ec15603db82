package journal

import (
	"time"
)

// timeline converts times for the file. It starts at the wall time at which the store
// was opened and follows the monotonic clock: setting the wall clock while the store runs
// changes no lease, in this run or the next.
type timeline struct{ epoch time.Time }

// nanos is a time on the timeline, in nanoseconds since 1970.
func (l timeline) nanos(t time.Time) int64 { return l.epoch.UnixNano() + int64(t.Sub(l.epoch)) }

// at is a time of a file. Compare it with clocks of this run only after stored.resume.
func at(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }

// resume moves the deadlines of a file to this run, and returns the outage by the wall
// clock. What had not ended at the last commit has as much time left as it had then, since
// its holder could not renew it, however the clock was set between two runs. What had
// ended stays ended.
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
	for i := range s.Leases {
		move(&s.Leases[i].ExpiresAt)
	}
	for i := range s.Cooldowns {
		move(&s.Cooldowns[i].Until)
	}
	for i := range s.Sessions {
		move(&s.Sessions[i].Until)
	}
	return outage
}
