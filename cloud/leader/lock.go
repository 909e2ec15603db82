package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// guardedLock is the Lease object, with an eye on what client-go does to it.
type guardedLock struct {
	resourcelock.Interface
	identity   string
	clock      clock.PassiveClock
	onAcquired func()
	// onLost is called when another holder is seen while lead works. client-go
	// goes on trying until its deadline.
	onLost func()

	mu sync.Mutex
	// sent is when the last renewal that succeeded was sent.
	sent time.Time
	// holder is the last one that was read or written.
	holder string
	// busy: lead has not returned.
	busy, acquired bool
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

// Get reads the lease.
func (g *guardedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := g.Interface.Get(ctx)
	if err == nil && g.saw(record.HolderIdentity) {
		g.onLost()
	}
	return record, raw, err
}

// saw notes the holder and reports whether lead works for a lease that is
// another's.
func (g *guardedLock) saw(holder string) (lost bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holder = holder
	if holder != g.identity {
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

// mayRelease refuses to give away what is not ours, or what is still in use.
func (g *guardedLock) mayRelease() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.holder != g.identity:
		return fmt.Errorf("not released: %w: %q holds it", ErrNotHeld, g.holder)
	case g.busy:
		return errors.New("not released: calls are under way, the lease has to run out")
	}
	return nil
}

// write notes when a renewal was sent, not when it was answered: others count
// from the moment at which the API server took it in, which is later.
func (g *guardedLock) write(record resourcelock.LeaderElectionRecord, send func() error) error {
	sent := g.clock.Now()
	if err := send(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holder = record.HolderIdentity
	g.sent = time.Time{}
	if record.HolderIdentity == g.identity {
		g.sent = sent
	}
	return nil
}

// RecordEvent is what client-go calls, among others, right after it won.
func (g *guardedLock) RecordEvent(event string) {
	if event == "became leader" {
		g.onAcquired()
	}
}
