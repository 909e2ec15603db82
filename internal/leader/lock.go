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

// guardedLock is the Lease object, with an eye on what client-go does to it.
type guardedLock struct {
	resourcelock.Interface
	cfg        Config
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
	// failing: the last read failed. outages counts how often reads failed and worked
	// again.
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

// Get reads the lease. The raw record is another after each time in which it could not be
// read: client-go then counts the lease's duration anew. The lease looks old because
// nobody could renew it, and its holder, which has gone on working, needs a moment to.
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

// missed notes that the lease could not be read. That it is not there is an
// answer.
func (g *guardedLock) missed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failing = g.failing || !apierrors.IsNotFound(err)
}

// marked is the raw record with the number of outages so far.
func (g *guardedLock) marked(raw []byte) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outages == 0 {
		return raw
	}
	return fmt.Appendf(slices.Clone(raw), "\noutages: %d", g.outages)
}

// saw notes the holder and reports whether lead works for a lease that is
// another's.
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

// mayRelease refuses to give away what is not ours, or what is still in use.
func (g *guardedLock) mayRelease() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.holder != g.cfg.Identity:
		return fmt.Errorf("not released: %w: %q holds it", ErrNotHeld, g.holder)
	case g.busy:
		return errors.New("not released: calls are under way, the lease has to run out")
	}
	return nil
}

// write notes when a renewal was sent, not when it was answered: others count
// from the moment at which the API server took it in, which is later.
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

// RecordEvent is what client-go calls, among others, right after it won.
func (g *guardedLock) RecordEvent(event string) {
	if event == "became leader" {
		g.onAcquired()
	}
}
