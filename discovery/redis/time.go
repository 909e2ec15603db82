package redis

import (
	"time"

	"k8s.io/utils/clock"
)

// timekeeper tells the time by the clock of Redis, as far as its last answer
// lets guess. It never goes back: ledgers count on that.
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

// observe takes the time from an answer.
func (t *timekeeper) observe(server time.Time) {
	if !t.local {
		t.offset = server.Sub(t.clock.Now())
	}
}

// argument is what scripts get: 0 makes them look at their own clock.
func (t *timekeeper) argument() int64 {
	if t.local {
		return t.clock.Now().UnixMicro()
	}
	return 0
}
