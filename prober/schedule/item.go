// Package schedule decides when each proxy is probed, and which proxy gets the next
// free worker. It is pure: the time is passed in, and nothing in it blocks.
package schedule

import "time"

// firstRetry is the delay before a new instance that failed its first probe is probed
// again. It doubles with each probe, up to the interval: an instance that is still
// starting must not wait a whole interval.
const firstRetry = time.Second

// Item is the place of one proxy in the schedule. The zero value is not queued.
type Item[T any] struct {
	Value   T         // what the item stands for
	Due     time.Time // when the next probe starts. Call Lanes.Push after a change
	Started time.Time // when the last probe started
	Slow    bool      // the last probe took SlowAfter or longer, see Lanes

	spread  bool  // the interval after the next probe is shortened at random
	retries uint8 // early retries so far
	pos     int   // index in the queue's heap plus 1, 0 while not queued
}

// Queued reports whether the item waits in a queue.
func (i *Item[T]) Queued() bool { return i.pos > 0 }

// Reset makes a new instance due now.
func (i *Item[T]) Reset(now time.Time) { i.Due, i.spread, i.retries = now, true, 0 }

// Postpone makes the item due at a time whose phase needs no further spreading.
func (i *Item[T]) Postpone(at time.Time) { i.Due, i.spread = at, false }

// Start notes that a probe starts now, and sets when the next one is due: one
// interval after this one was due, even if it starts late, so that each proxy keeps
// its phase, but at least half an interval from now. After the first probe of an
// instance the next one is up to half an interval early, by jitter (random in [0, d)):
// proxies created together drift apart and do not hit the probe target all at once.
func (i *Item[T]) Start(now time.Time, interval time.Duration, jitter func(d time.Duration) time.Duration) {
	if i.spread {
		i.Postpone(now.Add(interval - jitter(interval/2)))
	} else {
		i.Due = later(i.Due.Add(interval), now.Add(interval/2))
	}
	i.Started = now
}

// Finish notes that the probe ended. A probe that took longer than the interval was
// due again meanwhile: it queues behind the proxies that waited, not before them.
func (i *Item[T]) Finish(now time.Time) {
	i.Slow = now.Sub(i.Started) >= SlowAfter
	i.Due = later(i.Due, now)
}

// RetryEarly brings the next probe of an instance that never worked forward, with
// exponential backoff up to the interval.
func (i *Item[T]) RetryEarly(now time.Time, interval time.Duration) {
	wait := firstRetry << min(i.retries, 20)
	if wait >= interval {
		return
	}
	i.retries++
	if at := now.Add(wait); at.Before(i.Due) {
		i.Due, i.spread = at, true
	}
}

// Within brings the next probe forward, to at most d from now.
func (i *Item[T]) Within(now time.Time, d time.Duration) {
	if at := now.Add(d); at.Before(i.Due) {
		i.Postpone(at)
	}
}

// SetInterval counts a changed interval from the last probe, or from now when there
// was none.
func (i *Item[T]) SetInterval(now time.Time, interval time.Duration) {
	switch at := now.Add(interval); {
	case !i.Started.IsZero():
		i.Due = i.Started.Add(interval)
	case at.Before(i.Due):
		i.Due = at
	}
}

// Rephase brings the due time into the coming interval and keeps its phase, so that
// missed probes are skipped, and no proxy waits for a time that a clock jump has put
// far away.
func (i *Item[T]) Rephase(now time.Time, interval time.Duration) {
	phase := i.Due.Sub(now) % interval
	if phase < 0 {
		phase += interval
	}
	i.Due = now.Add(phase)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
