package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// account is everything about one account: the proxies of all providers that
// share it, and what was observed.
type account struct {
	name      string
	providers []provider.Named
	opts      *Options
	log       *slog.Logger
	wakeup    chan struct{}

	// began is when this reconciler did.
	began time.Time

	mu         sync.Mutex
	proxies    map[string]*proxy
	tombstones map[string]time.Time
	snapshot   snapshot
	gates      gates
	// paused holds back all mutations after the provider asked for fewer.
	pausedUntil time.Time
	// limited counts such answers in a row.
	limited int
	// listing: a list is under way. nextList is when the next one is due.
	listing  bool
	nextList time.Time
	listErr  error
	// running jobs, at most Options.Concurrency.
	running int
}

func newAccount(name string, opts *Options) *account {
	return &account{
		name: name, opts: opts, log: opts.Log.With("account", name),
		wakeup: make(chan struct{}, 1), began: opts.Clock.Now(),
		proxies: map[string]*proxy{}, tombstones: map[string]time.Time{},
		snapshot: newSnapshot(), gates: gates{},
	}
}

// cloud is the one that lists the account.
func (a *account) cloud() provider.Cloud { return a.providers[0].Cloud }

// job is a call to be made outside the lock.
type job func(context.Context)

// run works until ctx ends and every call has returned.
func (a *account) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for ctx.Err() == nil {
		jobs, next := a.step()
		for _, j := range jobs {
			calls.Go(func() { a.do(ctx, j) })
		}
		a.sleep(ctx, next)
	}
}

// sleep returns at the given moment, on news, or when ctx ends. Zero means on
// news alone; it then returns after a while all the same, to expire what is
// old.
func (a *account) sleep(ctx context.Context, until time.Time) {
	now := a.opts.Clock.Now()
	if until.IsZero() {
		until = now.Add(time.Minute)
	}
	timer := a.opts.Clock.NewTimer(max(0, until.Sub(now)))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-a.wakeup:
	case <-ctx.Done():
	}
}

// do makes one call and lets the loop see its outcome.
func (a *account) do(ctx context.Context, j job) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.CallTimeout)
	defer cancel()
	j(ctx)
	a.mu.Lock()
	a.running--
	a.mu.Unlock()
	a.wake()
}

func (a *account) wake() {
	select {
	case a.wakeup <- struct{}{}:
	default:
	}
}

// step decides about everything that is due. It returns the calls to make and
// when to decide next; zero means on news alone.
func (a *account) step() ([]job, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Clock.Now()
	var jobs []job
	if !a.listing && !now.Before(a.nextList) {
		a.listing = true
		a.running++
		a.nextList = now.Add(a.opts.ListInterval)
		jobs = append(jobs, a.list)
	}
	var next time.Time
	if !a.listing { // otherwise its end wakes the loop
		next = a.nextList
	}
	if a.snapshot.listed() {
		a.expire(now)
		due, soon := a.due(now)
		jobs = append(jobs, due...)
		next = sooner(next, soon)
	}
	return jobs, next
}

// due starts what the proxies need: deletions first, since they make room.
func (a *account) due(now time.Time) ([]job, time.Time) {
	v := a.view(now)
	var jobs []job
	var next time.Time
	for _, inserts := range []bool{false, true} {
		for _, e := range a.proxies {
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
func (a *account) start(e *proxy, s step, v *view) (job, time.Time) {
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

// decide decides about e, and has an reconciler that has just begun look into every
// zone of a Proxy before it makes the first instance of it.
func (a *account) decide(e *proxy, v *view) step {
	s := decide(e, v)
	first := s.kind == stepInsert && s.place == nil && !e.lagRuledOut
	if first && !a.pastListLag(a.snapshot.listedAt) && len(zones(e.req)) > 1 {
		e.verifyZones(a.snapshot.listedAt)
		return decide(e, v)
	}
	return s
}

func (a *account) view(now time.Time) *view {
	return &view{
		now: now, gap: a.snapshot.gap(), pausedUntil: a.pausedUntil, gates: a.gates,
		occupied: a.occupied(), nextList: a.nextList,
	}
}

// occupied counts the instances that exist or may exist.
func (a *account) occupied() int {
	n := len(a.snapshot.vms)
	for _, e := range a.proxies {
		for ref := range e.places {
			if _, listed := a.snapshot.vms[ref]; !listed {
				n++
			}
		}
	}
	return n
}

// note keeps why the proxy waits, for answers.
func (e *proxy) note(s step) {
	if s.failure != nil {
		e.failure = s.failure
	}
}

// expire forgets what nobody asked for lately: a Proxy that was deleted without
// a word to us must not get a new instance. What exists is left to the orphan
// collector.
func (a *account) expire(now time.Time) {
	for uid, e := range a.proxies {
		if !e.busy && now.Sub(e.renewed) > a.opts.IntentTTL {
			delete(a.proxies, uid)
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
