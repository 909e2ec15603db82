// Package chaos runs fault campaigns: it breaks a whole local stack in many ways,
// records what happens, and compares the history with what the system promises.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/check"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

const (
	resync = 15 * time.Second // Metacontroller's resync period
	// maxTTL and cooldown of both lease stores.
	maxTTL   = 15 * time.Second
	cooldown = 20 * time.Second

	baseline = 10 * time.Second
	// quiet is the shortest recovery stage: time for some dead proxies and for the probes
	// that find them alive again. It lasts until all Proxies are Ready, at most
	// quietMost: a cloud adapter that has just started trusts no list for 2 minutes, and a
	// zone without capacity rests for 2 minutes, or 4.
	quiet     = 48 * time.Second
	quietMost = 6 * time.Minute
	quietAct  = 10 * time.Second       // the shortest time between the last edit and the end of the stage
	settling  = maxTTL + 2*time.Second // the last stage, without load: all leases expire
)

// LeastDuration is the shortest campaign.
const LeastDuration = plan.Least + baseline + quiet + settling

// ErrBroken is returned when the system broke a promise.
var ErrBroken = errors.New("the system broke its promises")

// Config of a campaign.
type Config struct {
	Stack               stack.Config  // to run; the campaign adds what it needs
	Seed                uint64        // of all random choices
	Duration            time.Duration // from the end of start-up to the report. A slow recovery adds to it.
	External, Pods, VMs int           // numbers of Proxies of each kind
	History             string        // the file that everything is recorded in. It must not exist.
}

func (c *Config) validate() error {
	var errs []error
	if c.Duration < LeastDuration {
		errs = append(errs, fmt.Errorf("duration %s: want %s or more, so that every kind of fault fits", c.Duration, LeastDuration))
	}
	if c.History == "" {
		errs = append(errs, errors.New("no file for the history"))
	}
	return errors.Join(errs...)
}

// faults is the length of the fault stage.
func (c *Config) faults() time.Duration { return c.Duration - baseline - quiet - settling }

// Run runs a campaign: it starts a stack with all Proxies, injects the faults of the
// seed's plan under load, lets the system recover, and checks the history. It prints
// progress and a report. It returns ErrBroken when a promise was broken; the logs
// of all programs are then kept. The history is always kept, nothing else.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	c := &campaign{cfg: cfg, lab: &lab{cfg: cfg}, out: out}
	c.print("seed %d, %s of faults, %d Proxies; history: %s", cfg.Seed, cfg.faults(), cfg.External+cfg.Pods+cfg.VMs, cfg.History)
	err := c.lab.open(ctx)
	if err == nil {
		err = c.run(ctx)
	}
	if err == nil {
		err = c.check()
	}
	return errors.Join(err, c.lab.close(err != nil && ctx.Err() == nil))
}

// check prints the report.
func (c *campaign) check() error {
	if err := c.lab.recorder.Close(); err != nil {
		return err
	}
	c.tally()
	exits := c.lab.unexpectedExits()
	for _, exit := range exits {
		c.print("exited unexpectedly: %s", exit)
	}
	err := Check(c.cfg.History, c.out)
	if err == nil && len(exits) > 0 {
		err = fmt.Errorf("%w: programs exited unexpectedly; the history is in %s", ErrBroken, c.cfg.History)
	}
	return err
}

// Check compares the history of a campaign with what the system promises, and prints a
// report. It returns ErrBroken when a promise was broken.
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
	if unchecked := result.Unchecked(); len(unchecked) > 0 {
		return fmt.Errorf("the campaign gave no occasion to check these promises: %v; the history is in %s", unchecked, path)
	}
	return nil
}
