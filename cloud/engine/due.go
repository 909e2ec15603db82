package engine

import (
	"time"
)

// due starts what the entries need: deletions first, since they make room.
func (a *account) due(now time.Time) ([]job, time.Time) {
	v := a.view(now)
	var jobs []job
	var next time.Time
	for _, inserts := range []bool{false, true} {
		for _, e := range a.entries {
			s := a.decide(e, v)
			e.note(s)
			if s.kind == stepWait {
				next = sooner(next, s.until)
				continue
			}
			if (s.kind == stepInsert) != inserts {
				continue
			}
			j, until := a.start(e, s, v)
			if j != nil {
				jobs = append(jobs, j)
			}
			next = sooner(next, until)
		}
	}
	return jobs, next
}

// start begins a step, or returns when it may begin.
func (a *account) start(e *entry, s step, v *view) (job, time.Time) {
	if a.running >= a.opts.Concurrency {
		return nil, time.Time{} // the end of a call wakes the loop
	}
	if s.kind == stepInsert || s.kind == stepRemove {
		if delay := a.opts.Bucket.Take(v.now); delay > 0 {
			return nil, v.now.Add(delay)
		}
	}
	e.busy = true
	a.running++
	switch s.kind {
	case stepPoll:
		return a.poll(e, s.place, s.call), time.Time{}
	case stepCheck:
		return a.check(e, s.place), time.Time{}
	case stepInsert:
		p := a.prepareInsert(e, s, v.now)
		v.occupied++
		return a.insert(e, p, p.insert), time.Time{}
	}
	return a.remove(e, s.place, *s.place.vm), time.Time{}
}

// decide decides about e, and has an engine that has just begun look into every
// zone of a Proxy before it makes the first instance of it.
func (a *account) decide(e *entry, v *view) step {
	s := decide(e, v)
	first := s.kind == stepInsert && s.place == nil && !e.sure
	if first && !a.settled(a.world.listedAt) && len(zones(e.req)) > 1 {
		e.suspect(a.world.listedAt)
		return decide(e, v)
	}
	return s
}

func (a *account) view(now time.Time) *view {
	return &view{
		now: now, gap: a.world.gap(), paused: a.paused, gates: a.gates,
		occupied: a.occupied(), nextList: a.nextList,
	}
}

// occupied counts the instances that exist or may exist.
func (a *account) occupied() int {
	n := len(a.world.vms)
	for _, e := range a.entries {
		for ref := range e.places {
			if _, listed := a.world.vms[ref]; !listed {
				n++
			}
		}
	}
	return n
}

// note keeps why the entry waits, for answers.
func (e *entry) note(s step) {
	if s.failure != nil {
		e.failure = s.failure
	}
}

// expire forgets what nobody asked for lately: a Proxy that was deleted without
// a word to us must not get a new instance. What exists is left to the orphan
// collector.
func (a *account) expire(now time.Time) {
	for uid, e := range a.entries {
		if !e.busy && now.Sub(e.renewed) > a.opts.IntentTTL {
			delete(a.entries, uid)
			a.log.Info("nobody asks for this instance any more", "instance", e.name, "uid", uid)
		}
	}
	for uid, since := range a.tombstones {
		if now.Sub(since) > tombstoneTTL {
			delete(a.tombstones, uid)
		}
	}
}

// tombstoneTTL is how long a UID that was deleted is refused. UIDs are never
// used again; only stale callers ask for them.
const tombstoneTTL = 24 * time.Hour
