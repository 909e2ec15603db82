// Package leader lets one of several processes act at a time, through a Lease
// object, and makes sure that one which was frozen past its lease notices before
// it acts again.
//
// client-go elects; this package adds what it leaves to its callers. Whether we
// may act is asked right before each call, against the moment of the last
// renewal and not against a flag that a frozen process has had no time to
// clear. The lease is released only when all work has ended, and only while it
// is ours: client-go would release a lease that somebody else took over in the
// meantime.
//
// After an outage of the API server the holder goes first: whoever waited for its
// lease to run out could not see it being renewed.
//
// What remains is the time between the last look at the clock and the first
// byte on the wire.
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

// callMargin is how long before anybody else may act our last call must have
// ended.
const callMargin = time.Second

// Config of a Lease.
type Config struct {
	// Client of the API server that holds the Lease object.
	Client kubernetes.Interface
	// Namespace and Name of the Lease object.
	Namespace, Name string
	// Identity of this process, different after each start.
	Identity string
	// Duration is how long others wait after our last renewal. RenewDeadline is
	// how long we act after it, RetryPeriod how often we renew.
	Duration, RenewDeadline, RetryPeriod time.Duration
	// Labels of the Lease object.
	Labels map[string]string
	// Alive, when set, is asked before each renewal: while it returns an error the
	// lease is not renewed, so that another process gets its turn.
	Alive func() error
	// Renewed, when set, hears how each renewal went. After Alive failed the error
	// is an ErrWithheld.
	Renewed func(error)
	// Outvoted, when set, is called whenever the lease is seen to be another's.
	Outvoted func()
	// Clock that leases are timed by.
	Clock clock.PassiveClock
	// Log of the election.
	Log *slog.Logger
}

// Lease is this process's share in the Lease object.
type Lease struct {
	cfg  Config
	lock *guardedLock
}

// New returns a lease that is not ours yet.
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
	// ErrNotHeld: the lease is somebody else's, or nobody's.
	ErrNotHeld = errors.New("the lease is not held")
	// ErrWithheld: this process is not fit to hold the lease.
	ErrWithheld = errors.New("the lease is not renewed")
)

// Writer returns nil while no other process may act, together with the moment
// until which that is certain. It asks the clock, both for time passed and for
// time of day: one of them stands still when a machine is suspended, the other
// may jump.
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

// Run works for the lease until ctx ends. Whenever it is ours it calls lead,
// whose context ends when the lease is lost or ctx ends; lead must then return
// as soon as none of its calls is under way. After the last one the lease is
// released.
func (l *Lease) Run(ctx context.Context, lead func(context.Context)) error {
	for ctx.Err() == nil {
		if err := l.term(ctx, lead); err != nil {
			return err
		}
	}
	return nil
}

// term is one election and, if won, one time of leading.
func (l *Lease) term(ctx context.Context, lead func(context.Context)) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// Until the lease is ours the end of ctx ends the election; after that
	// only the end of lead does.
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
