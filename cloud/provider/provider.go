package provider

import (
	"context"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

// Cloud is one account at one cloud: the five calls that the adapter makes, and
// what it must know to make them. Implementations are safe for concurrent use,
// never retry by themselves (the engine counts and paces calls), obey their
// context, and return errors that unwrap to one of the classes of this package.
//
// Instances carry the installation, the UID of their Proxy and the spec hash
// as labels that are part of the insert call itself. All reads return only what
// the provider says now; nothing is cached.
type Cloud interface {
	// Account names what one List covers, such as "gcp/PROJECT". Providers of
	// the same account share one list.
	Account() string
	// MaxInstances is how many instances of this installation the account may
	// hold; 0 means no limit of our own.
	MaxInstances() int
	// ProviderID is how status and humans locate an instance.
	ProviderID(Ref) string
	// ParseProviderID is the inverse of ProviderID.
	ParseProviderID(string) (Ref, error)

	// Insert asks for an instance and returns the operation that makes it. It
	// returns ErrPermanent without a call when the request cannot be built,
	// ErrAlreadyExists when the name is taken in that zone. The failures that
	// matter (stockout, quota, a bad image) may come only with the operation.
	Insert(context.Context, InsertRequest) (Operation, error)
	// Get returns the instance, or ErrNotFound when that zone has none of that
	// name. ErrNotFound means that the zone itself said so.
	Get(context.Context, Ref) (Instance, error)
	// Delete asks for the end of an instance, whatever its state, and returns
	// the operation that ends it; ErrNotFound when there is none. It says
	// nothing about when the instance is gone: only Get and List do.
	Delete(ctx context.Context, ref Ref, requestID string) (Operation, error)
	// Operation returns how an operation stands, or ErrNotFound when the
	// provider no longer knows it.
	Operation(ctx context.Context, zone, name string) (Operation, error)
	// List returns all instances of this installation in the account, and what
	// of the account did not answer.
	List(context.Context) (Listing, error)
}

// Ref locates an instance within an account.
type Ref struct {
	// Zone the instance is in.
	Zone string
	// Name of the instance, unique within its zone at any one time.
	Name string
}

// Instance is one instance as the provider describes it.
type Instance struct {
	Ref
	// ID is unique for ever, unlike the name.
	ID string
	// UID of the Proxy it was made for, from its label; empty when it carries
	// none, and then it is not ours to touch.
	UID string
	// Installation it belongs to, from its label.
	Installation string
	// SpecHash it was made with, from its label; may be empty.
	SpecHash string
	// Port it was made for, from its label; 0 when it carries none.
	Port int32
	// State in the adapter's words.
	State adapter.State
	// Leaving: it is being deleted or stopped right now, so that a delete
	// would be refused or say nothing new.
	Leaving bool
	// Status in the provider's words, for people.
	Status string
	// IP is its public address; empty while it has none.
	IP string
	// CreatedAt is when the provider made it, in UTC.
	CreatedAt time.Time
}

// InsertRequest asks for one instance.
type InsertRequest struct {
	Ref
	// RequestID makes repeats of this very request harmless. It is a random
	// UUID per decision to insert.
	RequestID string
	// Installation label of the instance.
	Installation string
	// Want is what the hook asked for.
	Want adapter.PutRequest
}

// Operation is work that the provider accepted.
type Operation struct {
	// Zone that runs it.
	Zone string
	// Name of the operation.
	Name string
	// Done: it has ended, well or with Err.
	Done bool
	// TargetID is the ID of the instance that it is about, when known.
	TargetID string
	// Err is why it failed, nil otherwise. It is a *Error.
	Err error
}

// Listing is the answer to List.
type Listing struct {
	// Instances of the installation, in no order.
	Instances []Instance
	// Unreachable zones did not answer: nothing is known about them.
	Unreachable []string
	// Partial: something did not answer and the provider did not say what. Only
	// the zones of Answered are known then.
	Partial bool
	// Answered zones said what they have, be it nothing.
	Answered map[string]bool
}

// Covers reports whether the listing tells what is in zone and what is not.
func (l *Listing) Covers(zone string) bool {
	for _, z := range l.Unreachable {
		if z == zone {
			return false
		}
	}
	return !l.Partial || l.Answered[zone]
}

// Complete reports whether everything answered.
func (l *Listing) Complete() bool { return !l.Partial && len(l.Unreachable) == 0 }
