package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fault"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

// healTimeout is for undoing a fault: killed processes have to become ready on a busy
// machine.
const healTimeout = 3 * time.Minute

// player plays a plan.
type player struct {
	// fault returns the fault of a step, act runs a user's action and reports whether it
	// was done.
	fault    func(plan.Step) (fault.Fault, error)
	act      func(ctx context.Context, name, variant string, pick uint64) bool
	recorder *history.Recorder
	print    func(format string, args ...any)
	begin    time.Time
	end      time.Time

	users sync.WaitGroup

	mu      sync.Mutex
	tally   map[string]int // by kind
	skipped int
	err     error
}

// play plays all lanes at once. It returns when every fault is healed, also when ctx
// ends before. An error means that a fault could not be healed.
func (p *player) play(ctx context.Context, of *plan.Plan) error {
	var lanes sync.WaitGroup
	for _, lane := range of.Lanes {
		lanes.Go(func() {
			for _, step := range lane.Steps {
				if !supervise.Sleep(ctx, time.Until(p.begin.Add(step.At))) {
					return
				}
				p.step(ctx, step)
			}
		})
	}
	lanes.Wait()
	p.users.Wait()
	return p.err
}

func (p *player) step(ctx context.Context, s plan.Step) {
	if s.Kind == plan.Act {
		p.users.Go(func() {
			// Users stop retrying some time after the last fault.
			ctx, cancel := context.WithDeadline(ctx, p.end.Add(10*time.Second))
			defer cancel()
			p.count("user: "+s.Variant, p.act(ctx, s.Subject, s.Variant, s.Pick))
		})
		return
	}
	long := min(s.For, time.Until(p.end))
	if long < 0 { // the steps before took longer than planned
		p.count("", false)
		return
	}
	f, err := p.fault(s)
	if err != nil {
		p.fail(err)
		return
	}
	p.inject(ctx, s, f, long)
}

// inject injects a fault, waits and heals it.
func (p *player) inject(ctx context.Context, s plan.Step, f fault.Fault, long time.Duration) {
	window := f.Window
	window.From = p.recorder.Now()
	heal, err := f.Inject(ctx)
	if err != nil {
		p.print("  skipped: %s: %v", s, err)
		p.count("", false)
		return
	}
	over := p.recorder.Fault(window)
	kind := string(window.Family) + " " + s.Variant
	if window.UID == "" {
		kind = strings.TrimSpace(string(window.Family) + " " + window.Subject + " " + s.Variant)
	}
	p.count(kind, true)
	supervise.Sleep(ctx, long)
	healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), healTimeout)
	defer cancel()
	if err := heal(healing); err != nil {
		p.fail(fmt.Errorf("%s %s cannot be healed: %w", window.Family, window.Subject, err))
	}
	over()
}

// count counts a step that was done, or one that was skipped.
func (p *player) count(what string, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if done {
		p.tally[what]++
	} else {
		p.skipped++
	}
}

func (p *player) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
}
