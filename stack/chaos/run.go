package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/check"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// ErrBroken: the system broke a promise.
var ErrBroken = errors.New("the system broke its promises")

// Run runs a campaign: it starts a stack with all Proxies, breaks it by the plan
// of the seed while crawlers crawl, lets it recover, and judges it. It prints what
// it does, and a report. The error is ErrBroken when a promise was broken; what
// happened is then in the history, and the logs of all programs are left.
// Nothing else is left behind in any case.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	c := &campaign{cfg: cfg, lab: &lab{cfg: cfg}, out: out}
	c.say("seed %d, %s of trouble, %d Proxies; history: %s", cfg.Seed, cfg.trouble(), cfg.External+cfg.Pods+cfg.VMs, cfg.History)
	err := c.lab.open(ctx)
	if err == nil {
		err = c.run(ctx)
	}
	var broken error
	if err == nil {
		broken = c.check()
	}
	failed := (err != nil || broken != nil) && ctx.Err() == nil
	return errors.Join(err, broken, c.lab.close(failed))
}

// check prints the report.
func (c *campaign) check() error {
	if err := c.lab.recorder.Close(); err != nil {
		return err
	}
	c.tally()
	ended := c.lab.endedByThemselves()
	for _, end := range ended {
		c.say("ended by itself: %s", end)
	}
	err := Check(c.cfg.History, c.out)
	if err == nil && len(ended) > 0 {
		err = fmt.Errorf("%w: programs ended by themselves; the history is in %s", ErrBroken, c.cfg.History)
	}
	return err
}

// Check holds the history of a campaign against what the system promises, and
// prints what crawlers had of it and the verdict. The error is ErrBroken when a
// promise was broken.
func Check(path string, out io.Writer) error {
	h, err := history.Open(path)
	if err != nil {
		return err
	}
	result := check.Run(h)
	report(h, result, out)
	if n := len(result.Violations); n > 0 {
		return fmt.Errorf("%w %d times with seed %d; the history is in %s", ErrBroken, n, h.Begin.Seed, path)
	}
	if vacuous := result.Unchecked(); len(vacuous) > 0 {
		return fmt.Errorf("nothing happened that could have broken these promises: %v; the history is in %s", vacuous, path)
	}
	return nil
}
