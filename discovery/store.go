package discovery

import (
	"context"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

// LeaseStore is the authority on leases and cooldowns. Package storetest holds
// the tests that every implementation must pass.
//
// What a call answers is durable in stores that outlive the process: it still
// holds after a crash. Beside the errors named below, all calls return context
// errors, after which it is not known whether anything changed, and errors that
// unwrap to lease.ErrUnavailable.
type LeaseStore interface {
	// Offer tells the store how the fleet changed; the first call holds all of
	// it. Until then there is nothing to grant. It does not wait for anything
	// outside the process.
	Offer(offers lease.Offers)
	// Acquire chooses among the offered proxies that match, by lease.Compare
	// among those with room and without a cooldown, and grants a lease, in
	// one indivisible step. It returns a *lease.NoMatchError when there is
	// none to choose, lease.ErrKeyReused, and a *lease.LimitError when the
	// holder can have no other session.
	Acquire(ctx context.Context, req lease.Request) (lease.Lease, error)
	// Renew has a lease run for ttl from now, and never for less than it ran
	// before. It returns lease.ErrUnknown, or a *lease.EndedError when the
	// lease has expired or its instance is not there any more.
	Renew(ctx context.Context, id string, ttl time.Duration) (lease.Lease, error)
	// Get returns a lease that can be used, or the errors of Renew.
	Get(ctx context.Context, id string) (lease.Lease, error)
	// Release ends a lease. Unknown ids are no error.
	Release(ctx context.Context, id string) error
	// Report starts a cooldown if lease.Policies says so. It returns
	// lease.ErrUnknown for ids that are unknown, released, or expired for
	// longer than the cooldown window or before lease.Limits.Expired others, and a *lease.LimitError when the Proxy
	// can cool for no other target.
	Report(ctx context.Context, id string, rep lease.Report) error
	// Usage counts what runs and cools now.
	Usage(ctx context.Context) (lease.Usage, error)
	// List returns a part of the leases that run, in the order in which they
	// were granted.
	List(ctx context.Context, q lease.Query) (lease.Page, error)
	// Cooldowns lists those of a Proxy, by target.
	Cooldowns(ctx context.Context, proxyUID string) ([]lease.Cooldown, error)
	// EndCooldowns ends a Proxy's cooldown for one target before its time, or
	// all that it has when the target is "", and says how many it ended.
	EndCooldowns(ctx context.Context, proxyUID, target string) (ended int, err error)
	// Freed returns a channel that is closed when a refused Acquire may
	// succeed earlier than its NoMatchError.FreeAt says: a lease was released,
	// a cooldown was ended, or the fleet changed. What ends by its time closes nothing.
	Freed() <-chan struct{}
	// Changed returns a channel that is closed at the next change of
	// Usage.Revision. What ends by its time may take a second to be noticed.
	Changed() <-chan struct{}
	// Ready returns nil when leases can be granted and kept, else why not.
	Ready() error
}

// Fleet knows the proxies.
type Fleet interface {
	// Snapshot returns the fleet as of now, or an error that unwraps to
	// fleet.ErrNotSynced and says what is waited for.
	Snapshot() (fleet.Snapshot, error)
	// Changed returns a channel that is closed at the next change of what
	// Snapshot returns. What goes stale by its time closes nothing.
	Changed() <-chan struct{}
}

// Tokens knows who may do what.
type Tokens interface {
	// Identify returns who bears the token in an Authorization header, nil
	// when it is none that is known. It takes the same time for all wrong ones.
	Identify(header string) *access.Holder
}

// CredentialsReader reads the Secret that a proxy's credentialsRef names. The
// error unwraps to credentials.ErrRefused when somebody has to mend the Secret.
type CredentialsReader interface {
	Read(ctx context.Context, namespace, name string) (credentials.Credentials, error)
}
