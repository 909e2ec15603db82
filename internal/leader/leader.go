// Package leader lets one of several processes act at a time, through a Lease
// object, and makes sure that one which was frozen past its lease notices before
// it acts again.
//
// client-go elects; this package adds two things. Each call is checked against the time
// of the last renewal, not against a flag that a frozen process had no time to clear. The
// lease is released only after all work has ended, and only by its holder: client-go
// would also release a lease that another process took over meanwhile.
//
// After an outage of the API server the holder goes first: the candidates could not
// observe its renewals.
//
// The time between the check of the clock and the first byte on the wire remains.
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// callMargin is the time between the end of our last call and the first moment at which
// another process may act.
const callMargin = time.Second

// Config of a Lease.
type Config struct {
	// Client of the API server that holds the Lease object.
	Client kubernetes.Interface
	// Namespace and Name of the Lease object.
	Namespace, Name string
	// Identity of this process, different after each start.
	Identity string
	// Duration is how long others wait after our last renewal. RenewDeadline is how long
	// we act after it. RetryPeriod is the time between two renewals.
	Duration, RenewDeadline, RetryPeriod time.Duration
	// Labels of the Lease object.
	Labels map[string]string
	// Alive, when set, is called before each renewal. While it returns an error the lease
	// is not renewed, so that another process can take over.
	Alive func() error
	// Renewed, when set, gets the result of each renewal: ErrWithheld after Alive failed.
	Renewed func(error)
	// Outvoted, when set, is called when another process holds the lease.
	Outvoted func()
	// Clock that leases are timed by.
	Clock clock.PassiveClock
	// Log of the election.
	Log *slog.Logger
}

// Lease is this process's view of the Lease object.
type Lease struct {
	cfg  Config
	lock *guardedLock
}

// New returns a lease that is not held yet.
func New(cfg Config) *Lease {
	l := &Lease{cfg: cfg}
	l.lock = &guardedLock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Name},
			Client:     cfg.Client.CoordinationV1(),
			Labels:     cfg.Labels,
			LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.Identity},
		},
		cfg: cfg,
	}
	return l
}

var (
	// ErrNotHeld means that this process does not hold the lease.
	ErrNotHeld = errors.New("the lease is not held")
	// ErrWithheld means that Alive failed.
	ErrWithheld = errors.New("the lease is not renewed")
)

// Writer returns nil while no other process may act, and until when that is certain. It
// compares both the monotonic and the wall clock: the first stops while a machine is
// suspended, the second may jump.
func (l *Lease) Writer() (time.Time, error) {
	renewed := l.lock.renewed()
	if renewed.IsZero() {
		return time.Time{}, ErrNotHeld
	}
	now := l.cfg.Clock.Now()
	age := max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0)))
	if age >= l.cfg.RenewDeadline {
		return time.Time{}, fmt.Errorf("%w: it was last renewed %s ago", ErrNotHeld, age.Round(time.Millisecond))
	}
	return now.Add(l.cfg.Duration - callMargin - age), nil
}

// Run competes for the lease until ctx ends. While this process holds it, lead runs. Its
// context ends when the lease is lost or ctx ends; lead must then drain its calls and
// return. After that the lease is released.
func (l *Lease) Run(ctx context.Context, lead func(context.Context)) error {
	for ctx.Err() == nil {
		if err := l.term(ctx, lead); err != nil {
			return err
		}
	}
	return nil
}

// term is one election and, if won, one run of lead.
func (l *Lease) term(ctx context.Context, lead func(context.Context)) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// The end of ctx ends the election until the lease is held. After that only the end
	// of lead does.
	waiting := context.AfterFunc(ctx, stop)
	finished := make(chan struct{})
	working, lost := context.WithCancel(ctx)
	defer lost()
	l.lock.onLost = lost
	work := func(held context.Context) {
		defer close(finished)
		defer stop()
		defer l.lock.working(false)
		held, cancel := context.WithCancel(held)
		defer cancel()
		defer context.AfterFunc(working, cancel)()
		l.cfg.Log.Info("this process leads", "lease", l.cfg.Name)
		lead(held)
		l.cfg.Log.Info("this process no longer leads", "lease", l.cfg.Name)
	}
	l.lock.onAcquired = func() { waiting(); l.lock.working(true) }
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          l.lock,
		LeaseDuration: l.cfg.Duration, RenewDeadline: l.cfg.RenewDeadline, RetryPeriod: l.cfg.RetryPeriod,
		ReleaseOnCancel: true, Name: l.cfg.Name,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: work, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return fmt.Errorf("lease %s: %w", l.cfg.Name, err)
	}
	elector.Run(klog.NewContext(electing, logr.FromSlogHandler(l.cfg.Log.Handler())))
	if l.lock.acquiredOnce() {
		<-finished
	}
	l.lock.forget()
	return nil
}
