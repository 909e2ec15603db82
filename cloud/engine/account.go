package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// account is everything about one account: the entries of all providers that
// share it, and what was observed.
type account struct {
	name      string
	providers []provider.Named
	opts      *Options
	log       *slog.Logger
	wake      chan struct{}

	// began is when this engine did.
	began time.Time

	mu         sync.Mutex
	entries    map[string]*entry
	tombstones map[string]time.Time
	world      world
	gates      gates
	// paused holds back all mutations after the provider asked for fewer.
	paused time.Time
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
		wake: make(chan struct{}, 1), began: opts.Clock.Now(),
		entries: map[string]*entry{}, tombstones: map[string]time.Time{},
		world: newWorld(), gates: gates{},
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
	case <-a.wake:
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
	a.poke()
}

func (a *account) poke() {
	select {
	case a.wake <- struct{}{}:
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
	if a.world.listed() {
		a.expire(now)
		due, soon := a.due(now)
		jobs = append(jobs, due...)
		next = sooner(next, soon)
	}
	return jobs, next
}
