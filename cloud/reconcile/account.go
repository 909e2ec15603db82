package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// tombstoneTTL is how long a deleted UID is refused. UIDs are never reused; only
// callers with a stale cache send them again.
const tombstoneTTL = 24 * time.Hour

// account holds the Proxies of all providers that share one account, and what was
// observed there.
type account struct {
	name      string
	providers []provider.Named
	opts      *Options
	log       *slog.Logger
	wakeup    chan struct{}
	startedAt time.Time

	mu           sync.Mutex
	proxies      map[string]*proxy
	tombstones   map[string]time.Time
	snapshot     snapshot
	gates        gates
	pausedUntil  time.Time // holds back all mutations after a rate limit; rateLimits counts those in a row
	rateLimits   int
	listing      bool // a list is in flight. nextList is when the next one is due
	nextList     time.Time
	listErr      error // of the last list; listFailures counts failed ones in a row
	listFailures int
	running      int // calls, at most Options.Concurrency
}

func newAccount(name string, opts *Options) *account {
	return &account{
		name: name, opts: opts, log: opts.Log.With("account", name),
		wakeup: make(chan struct{}, 1), startedAt: opts.Clock.Now(),
		proxies: map[string]*proxy{}, tombstones: map[string]time.Time{},
		snapshot: newSnapshot(), gates: gates{},
	}
}

// cloud is the provider that lists the account.
func (a *account) cloud() provider.Cloud { return a.providers[0].Cloud }

// job is a call to make without the lock.
type job func(context.Context)

// run reconciles until ctx ends and every call has returned.
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

// sleep returns at the given time, on a wakeup, or when ctx ends. Zero means on a
// wakeup, and after a minute at the latest, so that old state expires.
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

// do makes one call and wakes the loop, which reconciles with its outcome.
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

// step returns the calls that are due and when to reconcile next; zero means on a
// wakeup.
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
	if !a.listing { // otherwise the end of the list wakes the loop
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

// due starts the steps of all Proxies: deletions first, since they free capacity.
func (a *account) due(now time.Time) ([]job, time.Time) {
	v := &view{
		now: now, gap: a.snapshot.gap(), pausedUntil: a.pausedUntil, gates: a.gates,
		occupied: a.occupied(), nextList: a.nextList,
	}
	var jobs []job
	var next time.Time
	for _, inserts := range []bool{false, true} {
		for _, px := range a.proxies {
			s := a.decide(px, v)
			if s.failure != nil {
				px.failure = s.failure
			}
			if s.kind == stepWait {
				next = sooner(next, s.until)
				continue
			}
			if (s.kind == stepInsert) != inserts {
				continue
			}
			j, until := a.start(px, s, v)
			if j != nil {
				jobs = append(jobs, j)
			}
			next = sooner(next, until)
		}
	}
	return jobs, next
}

// start begins a step, or returns when it may begin.
func (a *account) start(px *proxy, s step, v *view) (job, time.Time) {
	if a.running >= a.opts.Concurrency {
		return nil, time.Time{} // the end of a call wakes the loop
	}
	if s.kind == stepInsert || s.kind == stepRemove {
		if delay := a.opts.Bucket.Take(v.now); delay > 0 {
			return nil, v.now.Add(delay)
		}
	}
	px.busy = true
	a.running++
	switch s.kind {
	case stepPoll:
		return a.poll(px, s.place, s.call), time.Time{}
	case stepCheck:
		return a.check(px, s.place), time.Time{}
	case stepInsert:
		p := a.prepareInsert(px, s, v.now)
		v.occupied++
		return a.insert(px, p, p.insert), time.Time{}
	}
	return a.remove(px, s.place, *s.place.vm), time.Time{}
}

// decide returns the next step of px. Soon after its start, when lists may lag
// behind a predecessor's inserts, it reads every zone before the first insert.
func (a *account) decide(px *proxy, v *view) step {
	s := decide(px, v)
	first := s.kind == stepInsert && s.place == nil && !px.lagRuledOut
	if first && !a.pastListLag(a.snapshot.listedAt) && len(zones(px.req)) > 1 {
		px.verifyZones(a.snapshot.listedAt)
		return decide(px, v)
	}
	return s
}

// occupied counts the instances that exist or may exist.
func (a *account) occupied() int {
	n := len(a.snapshot.vms)
	for _, px := range a.proxies {
		for ref := range px.places {
			if _, listed := a.snapshot.vms[ref]; !listed {
				n++
			}
		}
	}
	return n
}

// expire drops Proxies without a recent request: a Proxy that was deleted without
// its finalizer must not get a new instance. The orphan collector deletes what
// exists.
func (a *account) expire(now time.Time) {
	for uid, px := range a.proxies {
		if !px.busy && now.Sub(px.lastRequest) > a.opts.IntentTTL {
			delete(a.proxies, uid)
			a.log.Info("Proxy dropped: no request for it within the TTL", "instance", px.name, "uid", uid)
		}
	}
	for uid, since := range a.tombstones {
		if now.Sub(since) > tombstoneTTL {
			delete(a.tombstones, uid)
		}
	}
}
