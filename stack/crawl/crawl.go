// Package crawl measures a crawl of many workers while proxies fail: once without proxies, once
// with a list of proxies that were healthy in the beginning, once with leases.
package crawl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/walk"
)

const (
	// attempts for one page; then it is lost.
	attempts = 3
	// pageTimeout bounds one attempt.
	pageTimeout = 5 * time.Second
	// pagesPerLease is how many pages a worker fetches through one lease.
	pagesPerLease = 20
	// leftWait is how long discovery may take to end the leases that workers gave back.
	leftWait = 5 * time.Second
)

// Config of Run.
type Config struct {
	// Stack to crawl on.
	Stack walk.Stack
	// Workers crawl side by side, each a page after a pause of about Pause.
	Workers int
	Pause   time.Duration
	// Proxies is how many External proxies there are.
	Proxies int
	// Duration of each of the three crawls.
	Duration time.Duration
	// Seed of faults and pauses.
	Seed uint64
	// IP that the proxies listen on.
	IP string
}

// Validate returns an error for each value out of range.
func (c Config) Validate() error {
	var errs []error
	if c.Workers < 1 || c.Workers > 1000 {
		errs = append(errs, errors.New("workers: want 1 to 1000"))
	}
	if c.Proxies < 4 || c.Proxies > 200 {
		errs = append(errs, errors.New("proxies: want 4 to 200"))
	}
	if c.Duration < time.Second {
		errs = append(errs, errors.New("duration: want a second or more"))
	}
	return errors.Join(errs...)
}

// Run crawls in the three ways, writes a table to out, and returns the result of each way.
func Run(ctx context.Context, cfg Config, out io.Writer) ([]Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	fleet, err := openFleet(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer fleet.close()
	c, err := client.New(client.Config{URL: cfg.Stack.DiscoveryURL, Token: cfg.Stack.Token, Transport: transport(cfg.Stack.TargetCA, nil)})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%d workers, %d proxies of which one fails every %s, %s for each crawl\n\n",
		cfg.Workers, cfg.Proxies, faultEvery(cfg).Round(time.Millisecond), cfg.Duration)
	var results []Result
	for _, way := range []way{
		&direct{client: httpClient(cfg.Stack.TargetCA, nil)},
		newBlind(cfg, fleet),
		&leased{client: c, site: cfg.Stack.TargetURL},
	} {
		r, err := measure(ctx, cfg, fleet, way)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, writeTable(out, results)
}

// way is a way to fetch pages.
type way interface {
	name() string
	// worker returns a fetch function for one worker, and what ends it.
	worker(n int, log *useLog) (fetch func(ctx context.Context, page string) bool, end func())
}

// measure crawls in one way while proxies fail.
func measure(ctx context.Context, cfg Config, fleet *fleet, w way) (Result, error) {
	if err := fleet.awaitReady(ctx); err != nil {
		return Result{}, err
	}
	log := &useLog{}
	began := time.Now()
	during, cancel := context.WithTimeout(ctx, cfg.Duration)
	defer cancel()
	var faults []outage
	var busy sync.WaitGroup
	busy.Go(func() { faults = fleet.fail(during, cfg) })
	pages := make([]tally, cfg.Workers)
	for n := range cfg.Workers {
		busy.Go(func() { pages[n] = work(during, cfg, w, n, log) })
	}
	busy.Wait()
	took := time.Since(began)
	fleet.mend()
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	left, err := leasesLeft(ctx, cfg.Stack, leftWait)
	if err != nil {
		return Result{}, err
	}
	return summarize(w.name(), pages, log.all(), faults, took, left), nil
}

// tally counts the pages of one worker.
type tally struct{ fetched, lost int }

func work(ctx context.Context, cfg Config, w way, n int, log *useLog) (t tally) {
	fetch, end := w.worker(n, log)
	defer end()
	pause := newPauses(cfg, n)
	for ctx.Err() == nil {
		switch fetched := fetch(ctx, cfg.Stack.TargetURL); {
		case fetched:
			t.fetched++
		case ctx.Err() == nil: // a page that the end has cut off is not lost
			t.lost++
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause()):
		}
	}
	return t
}

// modes in which a proxy fails, one after the other.
var modes = []external.Mode{external.Refuse, external.Hang, external.Forbid, external.Junk}
