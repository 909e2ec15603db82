package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// guardedLock wraps the Lease object and records what client-go does with it.
type guardedLock struct {
	resourcelock.Interface
	cfg        Config
	onAcquired func()
	// onLost is called when another holder is observed while lead runs. client-go retries
	// until its deadline.
	onLost func()

	mu sync.Mutex
	// sent is when the last renewal that succeeded was sent.
	sent time.Time
	// holder is the last one that was read or written.
	holder string
	// busy is set until lead returns.
	busy, acquired bool
	// failing is set after a failed read. outages counts the recoveries from it.
	failing bool
	outages int
}

func (g *guardedLock) renewed() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent
}

func (g *guardedLock) working(yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = yes
	g.acquired = g.acquired || yes
}

func (g *guardedLock) acquiredOnce() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.acquired
}

func (g *guardedLock) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent, g.holder, g.acquired = time.Time{}, "", false
}

// Get reads the lease. After each outage the raw record differs, so that client-go
// restarts the lease's duration: the record is stale because no renewal was possible, and
// its holder, which is still at work, needs a moment to renew it.
func (g *guardedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := g.Interface.Get(ctx)
	if err != nil {
		g.missed(err)
		return record, raw, err
	}
	if g.saw(record.HolderIdentity) {
		g.onLost()
	}
	if holder := record.HolderIdentity; holder != "" && holder != g.cfg.Identity {
		if g.cfg.Outvoted != nil {
			g.cfg.Outvoted()
		}
	}
	return record, g.marked(raw), nil
}

// missed records a failed read. NotFound is no failure.
func (g *guardedLock) missed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failing = g.failing || !apierrors.IsNotFound(err)
}

// marked appends the number of outages to the raw record.
func (g *guardedLock) marked(raw []byte) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outages == 0 {
		return raw
	}
	return fmt.Appendf(slices.Clone(raw), "\noutages: %d", g.outages)
}

// saw records the holder and reports whether lead runs without the lease.
func (g *guardedLock) saw(holder string) (lost bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holder = holder
	if g.failing {
		g.failing = false
		g.outages++
	}
	if holder != g.cfg.Identity {
		g.sent = time.Time{}
		return g.busy
	}
	return false
}

// Create writes the first record.
func (g *guardedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return g.write(record, func() error { return g.Interface.Create(ctx, record) })
}

// Update renews, takes over or releases.
func (g *guardedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		if err := g.mayRelease(); err != nil {
			return err
		}
	}
	return g.write(record, func() error { return g.Interface.Update(ctx, record) })
}

// mayRelease returns an error for a lease that is not held, or still in use.
func (g *guardedLock) mayRelease() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.holder != g.cfg.Identity:
		return fmt.Errorf("not released: %w: %q holds it", ErrNotHeld, g.holder)
	case g.busy:
		return errors.New("not released: calls are in flight, the lease has to expire")
	}
	return nil
}

// write records when a renewal was sent, not when its response came: others count from
// when the API server stored it, which is later.
func (g *guardedLock) write(record resourcelock.LeaderElectionRecord, send func() error) error {
	ours := record.HolderIdentity == g.cfg.Identity
	if err := g.fit(); ours && err != nil {
		return g.renewedWith(err)
	}
	sent := g.cfg.Clock.Now()
	err := send()
	if ours {
		err = g.renewedWith(err)
	}
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holder = record.HolderIdentity
	g.sent = time.Time{}
	if ours {
		g.sent = sent
	}
	return nil
}

func (g *guardedLock) fit() error {
	if g.cfg.Alive == nil {
		return nil
	}
	if err := g.cfg.Alive(); err != nil {
		return fmt.Errorf("%w: %w", ErrWithheld, err)
	}
	return nil
}

func (g *guardedLock) renewedWith(err error) error {
	if g.cfg.Renewed != nil {
		g.cfg.Renewed(err)
	}
	return err
}

// RecordEvent is called by client-go, among others right after it won.
func (g *guardedLock) RecordEvent(event string) {
	if event == "became leader" {
		g.onAcquired()
	}
}
