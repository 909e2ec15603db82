// Package reconcile brings instances outside the cluster from their observed to
// their desired state.
//
// It is level-triggered. Put and Delete only store the desired state and return
// the cached one; a loop per account compares the two and calls the provider. All
// state is in memory and comes from the provider, so that a new Reconciler, in this
// process or another, continues where the last one was cut off.
//
// The reconciler keeps, for each Proxy, the places where an instance with its UID
// is or may be. A place is added before an insert is sent, or when an instance is
// observed. It is removed only after two observations in a row, both begun after
// the last change there, found nothing. Without a place, and with every zone
// listed, there is no instance: a new one may be inserted, or a deletion is
// complete. From this follow the rules:
//
//   - Never two instances for one UID: no insert while there is a place.
//   - Never a false report of deletion: not Absent while there is a place.
//   - Unknown is not absent: an unreachable zone changes no place.
//   - A timeout is not a failure: an insert without a response keeps its place and
//     is retried with the same request id until its outcome is known.
//
// One aggregated list per account and interval serves all its Proxies. Single
// reads poll operations, confirm what a list no longer contains, and precede
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

// Options of a Reconciler.
type Options struct {
	Installation string                        // Installation label of every instance
	Providers    []provider.Named              // that Proxies may name; those of one account share its lists
	Bucket       *provider.Bucket              // throttles inserts and deletes
	ListInterval time.Duration                 // between the starts of two lists of one account
	QuotaRetry   time.Duration                 // the wait in a zone after a quota was exceeded
	IntentTTL    time.Duration                 // how long a desired state outlives the last request for it. It must be a few times the callers' resync period
	CallTimeout  time.Duration                 // bounds one step of one or two calls, and one list
	Concurrency  int                           // the limit of calls in flight per account
	NewID        func() string                 // returns request ids. Default random UUIDs
	Clock        clock.Clock                   // of all timing
	Made         func(provider, reason string) // counts a made instance by reason: new, replaced or lost
	Log          *slog.Logger                  // of the reconciler
}

// Reconciler works for one term, which is as long as this process holds the lease.
// The next term begins with a new Reconciler and an empty cache.
type Reconciler struct {
	accounts  []*account
	providers map[string]binding
}

type binding struct {
	provider.Named
	account *account
}

// New returns a reconciler with an empty cache.
func New(opts Options) *Reconciler {
	if opts.NewID == nil {
		opts.NewID = uuid.NewString
	}
	r := &Reconciler{providers: map[string]binding{}}
	byName := map[string]*account{}
	for _, named := range opts.Providers {
		a := byName[named.Account()]
		if a == nil {
			a = newAccount(named.Account(), &opts)
			byName[a.name] = a
			r.accounts = append(r.accounts, a)
		}
		a.providers = append(a.providers, named)
		r.providers[named.Name] = binding{named, a}
	}
	return r
}

// Run reconciles until ctx ends and every call in flight has returned.
func (r *Reconciler) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, a := range r.accounts {
		all.Go(func() { a.run(ctx) })
	}
	all.Wait()
}

// Put stores which instance is desired, and returns the observed one from the
// cache. Errors unwrap to a class of package adapter.
func (r *Reconciler) Put(providerName, name string, req adapter.PutRequest) (adapter.Instance, error) {
	b, err := r.binding(providerName)
	if err != nil {
		return adapter.Instance{}, err
	}
	out, err := b.account.put(b.Named, name, req)
	return out, wrap(providerName, err)
}

// Delete stores that no instance of this UID is desired, and returns the observed
// one from the cache: StateAbsent only when that is confirmed. providerID is the
// last known location, or empty. Errors are those of Put.
func (r *Reconciler) Delete(providerName, name, uid, providerID string) (adapter.Instance, error) {
	b, err := r.binding(providerName)
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

// List returns the whole cache.
func (r *Reconciler) List() adapter.List {
	out := adapter.List{Providers: []adapter.Provider{}, Instances: []adapter.ListedInstance{}}
	for _, a := range r.accounts {
		a.appendTo(&out)
	}
	slices.SortStableFunc(out.Instances, func(a, b adapter.ListedInstance) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Forget drops a UID whose Proxy does not exist.
func (r *Reconciler) Forget(uid string) {
	for _, a := range r.accounts {
		a.forget(uid)
	}
}

func (r *Reconciler) binding(name string) (binding, error) {
	b, ok := r.providers[name]
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
