// Package reconcile makes what is into what should be, for instances that live
// outside the cluster.
//
// It is level-triggered. The API only notes what should be and answers with
// what is known; a loop per account compares the two and makes the calls. All
// knowledge is in memory and comes from the account's own answers, so that an
// reconciler that starts anew, or in another process, continues where the last one
// was cut off.
//
// For one Proxy the reconciler keeps the places where an instance of its UID is or
// may be: a place appears before an insert is sent, or when an instance is
// seen, and disappears only when two observations in a row, both begun after
// the last change there, say that nothing is there. With no place left, and
// with every zone heard, there is no instance: a new one may be inserted, or a
// deletion is complete. From this follow the rules:
//
//   - Never two instances for one UID: no insert while there is a place.
//   - Never a deletion reported while something lives: not Absent while there is
//     a place.
//   - Unknown is not absent: a zone that does not answer changes no place.
//   - A lost answer is not an answer: an insert without one keeps its place and
//     is repeated with the same request id until the outcome is known.
//
// One aggregated list per account and interval serves all its Proxies. Single
// reads follow operations, confirm what a list no longer shows, and precede
// every delete.
package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Metrics takes what the reconciler counts.
type Metrics interface {
	// Made says that an instance was made, because it is new, replaced or lost.
	Made(provider, reason string)
}

// Options of an Reconciler.
type Options struct {
	// Installation label of everything.
	Installation string
	// Providers that Proxies may name; those of one account share its lists.
	Providers []provider.Named
	// Bucket paces inserts and deletes.
	Bucket *provider.Bucket
	// ListInterval between the starts of two lists of one account.
	ListInterval time.Duration
	// QuotaRetry is how long a zone rests after a quota was exceeded.
	QuotaRetry time.Duration
	// IntentTTL is how long the reconciler keeps at what nobody asks for any more.
	// It must be a few times longer than callers take to ask again.
	IntentTTL time.Duration
	// CallTimeout bounds one step of one or two calls, and one list.
	CallTimeout time.Duration
	// Concurrency is how many calls may be under way per account.
	Concurrency int
	// NewID returns request ids. Default random UUIDs.
	NewID func() string
	// Clock that everything is timed by.
	Clock clock.Clock
	// Metrics of the reconciler.
	Metrics Metrics
	// Log of the reconciler.
	Log *slog.Logger
}

// Reconciler is one term of work: from the moment this process may act until it may
// not. The next term begins with a new Reconciler, which knows nothing.
type Reconciler struct {
	accounts  []*account
	providers map[string]binding
}

type binding struct {
	provider.Named
	account *account
}

// New returns an reconciler that has observed nothing yet.
func New(opts Options) *Reconciler {
	if opts.NewID == nil {
		opts.NewID = uuid.NewString
	}
	e := &Reconciler{providers: map[string]binding{}}
	byName := map[string]*account{}
	for _, named := range opts.Providers {
		a := byName[named.Account()]
		if a == nil {
			a = newAccount(named.Account(), &opts)
			byName[a.name] = a
			e.accounts = append(e.accounts, a)
		}
		a.providers = append(a.providers, named)
		e.providers[named.Name] = binding{named, a}
	}
	return e
}

// Run works until ctx ends and every call under way has returned.
func (e *Reconciler) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, a := range e.accounts {
		all.Go(func() { a.run(ctx) })
	}
	all.Wait()
}

// Put says which instance should be, and returns at once what is. It makes no
// call. Errors unwrap to a class of package adapter.
func (e *Reconciler) Put(providerName, name string, req adapter.PutRequest) (adapter.Instance, error) {
	b, err := e.binding(providerName)
	if err != nil {
		return adapter.Instance{}, err
	}
	out, err := b.account.put(b.Named, name, req)
	return out, wrap(providerName, err)
}

// Delete says that no instance of this UID should be, and returns at once what
// is: StateAbsent only when that is confirmed. providerID is where the caller
// last knew it to be, may be empty. Errors are those of Put.
func (e *Reconciler) Delete(providerName, name, uid, providerID string) (adapter.Instance, error) {
	b, err := e.binding(providerName)
	if err != nil {
		return adapter.Instance{}, err
	}
	var hint *provider.Ref
	if providerID != "" {
		ref, err := b.ParseProviderID(providerID)
		if err != nil {
			return adapter.Instance{}, wrap(providerName, fmt.Errorf("%w: %w", adapter.ErrInvalid, err))
		}
		hint = &ref
	}
	out, err := b.account.delete(b.Named, name, uid, hint)
	return out, wrap(providerName, err)
}

// List returns everything that is known.
func (e *Reconciler) List() adapter.List {
	out := adapter.List{Providers: []adapter.Provider{}, Instances: []adapter.ListedInstance{}}
	for _, a := range e.accounts {
		a.describe(&out)
	}
	slices.SortStableFunc(out.Instances, func(a, b adapter.ListedInstance) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Forget makes the reconciler leave a UID alone whose Proxy is known not to exist.
func (e *Reconciler) Forget(uid string) {
	for _, a := range e.accounts {
		a.forget(uid)
	}
}

func (e *Reconciler) binding(name string) (binding, error) {
	b, ok := e.providers[name]
	if !ok {
		return b, fmt.Errorf("provider %q: %w: it is not in the provider config", name, adapter.ErrUnknownProvider)
	}
	return b, nil
}

func wrap(providerName string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("provider %q: %w", providerName, err)
}
