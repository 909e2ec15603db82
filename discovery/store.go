package discovery

import (
	"context"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

// LeaseStore is the authority on leases and cooldowns. Package storetest holds
// the tests that every implementation must pass. Errors that are none of those
// named below mean that the store is unavailable and that nothing changed.
type LeaseStore interface {
	// Acquire chooses among the candidates, by lease.Compare among those with
	// room and without a cooldown, and grants a lease, in one indivisible
	// step. It returns a *lease.NoMatchError when there is none to choose.
	Acquire(ctx context.Context, req lease.Request) (lease.Lease, error)
	// Release ends a lease. Unknown ids are no error.
	Release(ctx context.Context, id string) error
	// Report starts a cooldown if the result calls for one. It returns
	// lease.ErrUnknown for ids that are unknown, released, or expired for
	// longer than the cooldown window.
	Report(ctx context.Context, id string, rep lease.Report) error
	// Usage counts what runs and cools now.
	Usage(ctx context.Context) (lease.Usage, error)
}

// Fleet knows the proxies.
type Fleet interface {
	// Snapshot returns the fleet as of now, or an error that unwraps to
	// fleet.ErrNotSynced and says what is waited for.
	Snapshot() (fleet.Snapshot, error)
}

// CredentialsReader reads the Secret that a proxy's credentialsRef names. The
// error unwraps to credentials.ErrRefused when somebody has to mend the Secret.
type CredentialsReader interface {
	Read(ctx context.Context, namespace, name string) (credentials.Credentials, error)
}
