package redis

import (
	"time"

	"k8s.io/utils/clock"
)

// wentBack is how far behind the latest time an answer must be for the clock of
// Redis to have gone back, as at a failover to a machine with another clock.
// Answers that overtake each other differ by less: see callTimeout.
const wentBack = 10 * time.Second

// timekeeper tells the time by the clock of Redis, as far as its last answer
// lets guess. It does not go back, since ledgers count on that, unless Redis has:
// then what the mirror holds must be loaded anew.
type timekeeper struct {
	clock  clock.Clock
	local  bool
	offset time.Duration // that Redis is ahead of clock
	latest time.Time
}

// now is at the most one round trip behind Redis.
func (t *timekeeper) now() time.Time {
	if now := t.clock.Now().Add(t.offset); now.After(t.latest) {
		t.latest = now
	}
	return t.latest
}

// observe takes the time from an answer. It reports whether Redis has gone back,
// so that what seemed to be over is not.
func (t *timekeeper) observe(server time.Time) (back bool) {
	if t.local {
		return false
	}
	t.offset = server.Sub(t.clock.Now())
	if t.latest.Sub(server) <= wentBack {
		return false
	}
	t.latest = server
	return true
}

// argument is what scripts get: 0 makes them look at their own clock.
func (t *timekeeper) argument() int64 {
	if t.local {
		return t.clock.Now().UnixMicro()
	}
	return 0
}
