package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fault"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

// healTimeout bounds how long a fault may take to be undone: processes that were
// killed have to become ready on a machine that has little time for them.
const healTimeout = 3 * time.Minute

// player plays a plan.
type player struct {
	// fault makes the fault of a step, act does what users do and reports whether
	// it was done.
	fault    func(plan.Step) (fault.Fault, error)
	act      func(ctx context.Context, name, variant string, pick uint64) bool
	recorder *history.Recorder
	say      func(format string, args ...any)
	begin    time.Time
	end      time.Time

	users sync.WaitGroup

	mu      sync.Mutex
	tally   map[string]int // what was done, by kind
	skipped int
	err     error
}

// play plays all lanes at once. It returns when all that was broken is whole
// again, also when ctx ends before. An error means that something could not be
// made whole.
func (p *player) play(ctx context.Context, of *plan.Plan) error {
	var lanes sync.WaitGroup
	for _, lane := range of.Lanes {
		lanes.Go(func() {
			for _, step := range lane.Steps {
				if !sleep(ctx, time.Until(p.begin.Add(step.At))) {
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
			// Users give up some time after the trouble is over.
			ctx, cancel := context.WithDeadline(ctx, p.end.Add(10*time.Second))
			defer cancel()
			p.count("user: "+s.Variant, p.act(ctx, s.Subject, s.Variant, s.Pick))
		})
		return
	}
	long := min(s.For, time.Until(p.end))
	if long < 0 { // those before it took longer than planned
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

// inject breaks something, waits and makes it whole again.
func (p *player) inject(ctx context.Context, s plan.Step, f fault.Fault, long time.Duration) {
	window := f.Window()
	window.From = p.recorder.Now()
	heal, err := f.Inject(ctx)
	if err != nil {
		p.say("  not done: %s: %v", s, err)
		p.count("", false)
		return
	}
	over := p.recorder.Fault(window)
	kind := string(window.Family)
	if window.UID == "" {
		kind += " " + window.Subject
	}
	if s.Variant != "" {
		kind += " " + s.Variant
	}
	p.count(kind, true)
	sleep(ctx, long)
	healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), healTimeout)
	defer cancel()
	if err := heal(healing); err != nil {
		p.fail(fmt.Errorf("%s %s cannot be made whole again: %w", window.Family, window.Subject, err))
	}
	over()
}

// count counts what was done, or that it was not.
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

// sleep returns false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
