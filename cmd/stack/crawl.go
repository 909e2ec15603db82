package main

import (
	"context"
	"errors"
	"io"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/crawl"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/node"
)

const crawlIntro = `Starts the whole system with External proxies that fail one after the other, and
crawls three times under the same faults: without proxies, with the list of proxies
that were healthy in the beginning, and with leases. It prints the pages that each
fetched and lost, how evenly proxies were used, and how long failed ones were.`

// crawlFleet crawls on a stack of its own.
func crawlFleet(ctx context.Context, args []string, out io.Writer) error {
	var o options
	var cfg crawl.Config
	fs := flags.NewSet("stack crawl", crawlIntro, out)
	o.register(fs, node.SquidBuiltin)
	fs.IntVar(&cfg.Workers, "workers", 50, "`number` of workers")
	fs.IntVar(&cfg.Proxies, "proxies", 20, "`number` of proxies")
	fs.DurationVar(&cfg.Duration, "duration", 2*time.Minute, "`time` of each crawl")
	fs.DurationVar(&cfg.Pause, "pause", 500*time.Millisecond, "mean `time` between two pages of a worker")
	fs.Uint64Var(&cfg.Seed, "seed", 1, "`number` that faults and pauses follow from")
	if err := flags.Parse(fs, args); err != nil {
		return err
	}
	o.requireSquid = false // no Pods
	if err := errors.Join(o.validate(), cfg.Validate()); err != nil {
		return err
	}
	s, err := start(ctx, &o, out)
	if err != nil {
		return err
	}
	cfg.Stack, cfg.IP = s.Facts(), s.VisitorIP()
	_, err = crawl.Run(ctx, cfg, out)
	return errors.Join(err, s.Stop(err != nil && ctx.Err() == nil))
}
