package engine

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

// Metrics takes what the engine counts.
type Metrics interface {
	// Made says that an instance was made, because it is new, replaced or lost.
	Made(provider, reason string)
}

// Options of an Engine.
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
	// IntentTTL is how long the engine keeps at what nobody asks for any more.
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
	// Metrics of the engine.
	Metrics Metrics
	// Log of the engine.
	Log *slog.Logger
}

// Engine is one term of work: from the moment this process may act until it may
// not. The next term begins with a new Engine, which knows nothing.
type Engine struct {
	accounts  []*account
	providers map[string]binding
}

type binding struct {
	provider.Named
	account *account
}

// New returns an engine that has observed nothing yet.
func New(opts Options) *Engine {
	if opts.NewID == nil {
		opts.NewID = uuid.NewString
	}
	e := &Engine{providers: map[string]binding{}}
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
func (e *Engine) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, a := range e.accounts {
		all.Go(func() { a.run(ctx) })
	}
	all.Wait()
}

// Put says which instance should be, and returns at once what is. It makes no
// call. Errors unwrap to a class of package adapter.
func (e *Engine) Put(providerName, name string, req adapter.PutRequest) (adapter.Instance, error) {
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
func (e *Engine) Delete(providerName, name, uid, providerID string) (adapter.Instance, error) {
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
func (e *Engine) List() adapter.List {
	out := adapter.List{Providers: []adapter.Provider{}, Instances: []adapter.ListedInstance{}}
	for _, a := range e.accounts {
		a.describe(&out)
	}
	slices.SortStableFunc(out.Instances, func(a, b adapter.ListedInstance) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Forget makes the engine leave a UID alone whose Proxy is known not to exist.
func (e *Engine) Forget(uid string) {
	for _, a := range e.accounts {
		a.forget(uid)
	}
}

func (e *Engine) binding(name string) (binding, error) {
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
