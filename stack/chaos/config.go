package chaos

import (
	"errors"
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

const (
	// resync is the engine's resync period.
	resync = 15 * time.Second
	// maxTTL and cooldown of both lease stores.
	maxTTL   = 20 * time.Second
	cooldown = 20 * time.Second

	baseline = 15 * time.Second
	// settling is how long nothing happens in the end: all leases run out.
	settling = maxTTL + 5*time.Second
	// quiet is how long all is watched after the trouble, at least. It lasts until
	// all is well, but no longer than quietMost: an adapter that has just taken
	// over believes no list for 2 minutes, and a zone that was out of capacity
	// rests for as long, and twice as long when it still was.
	quiet     = 45 * time.Second
	quietMost = 6 * time.Minute
	// quietAct is how long nobody has done anything before it may end.
	quietAct = 10 * time.Second
)

// LeastDuration of a campaign.
const LeastDuration = plan.Least + baseline + quiet + settling

// Config says how a campaign is run.
type Config struct {
	// Stack says how the stack is run; the campaign fills in what it needs.
	Stack stack.Config
	// Seed that all random choices follow from.
	Seed uint64
	// Duration from the moment that all is up, to the verdict. When the system
	// takes longer to recover than expected, that comes on top.
	Duration time.Duration
	// External, Pods and VMs are how many Proxies of each kind there are.
	External, Pods, VMs int
	// History is the file that everything is written to. It must not exist.
	History string
}

func (c *Config) validate() error {
	var errs []error
	if c.Duration < LeastDuration {
		errs = append(errs, fmt.Errorf("duration %s: want %s or more, for all faults to have their turn", c.Duration, LeastDuration))
	}
	if c.History == "" {
		errs = append(errs, errors.New("no file for the history"))
	}
	return errors.Join(errs...)
}

// trouble is how much of the duration is left for trouble.
func (c *Config) trouble() time.Duration { return c.Duration - baseline - quiet - settling }
