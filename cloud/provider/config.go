package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
)

// Entry is one provider of the provider config.
type Entry = providers.Entry

// Deps are what constructors get besides their entry.
type Deps struct {
	// Installation label of everything that is made.
	Installation string
	// Log for what cannot be returned.
	Log *slog.Logger
}

// Constructor makes the Cloud of one entry. Its error names the field that is
// wrong; it makes no call to the cloud.
type Constructor func(context.Context, Entry, Deps) (Cloud, error)

// Registry holds the constructor of every type.
type Registry map[string]Constructor

// Named is a provider that is ready for use.
type Named struct {
	// Name in the provider config.
	Name string
	// Type in the provider config.
	Type string
	Cloud
}

// Close releases what the provider holds, such as connections. It needs none.
func (n Named) Close() error {
	if c, ok := n.Cloud.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Load reads the provider config at path and makes its providers, in their
// order, leaving out those of type kubernetes. Any error refuses the whole; it
// names the file and everything that is wrong.
func (r Registry) Load(ctx context.Context, path string, deps Deps) ([]Named, error) {
	text, err := providers.Read(path)
	if err != nil {
		return nil, fmt.Errorf("provider config: %w", err)
	}
	named, err := r.Build(ctx, text, deps)
	if err != nil {
		return nil, fmt.Errorf("provider config %s: %w", path, err)
	}
	return named, nil
}

// Build makes the providers of a provider config, as Load does.
func (r Registry) Build(ctx context.Context, text []byte, deps Deps) ([]Named, error) {
	types := slices.Sorted(maps.Keys(r))
	entries, err := providers.Parse(text, append(slices.Clone(types), providers.TypeKubernetes)...)
	if err != nil {
		return nil, err
	}
	var named []Named
	var problems []error
	for i, e := range entries {
		if e.Type == providers.TypeKubernetes {
			continue // run by the hooks, which also check its block
		}
		c, err := r[e.Type](ctx, e, deps)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s %q: %w", providers.Place(i), e.Name, err))
			continue
		}
		named = append(named, Named{Name: e.Name, Type: e.Type, Cloud: c})
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("no provider for this adapter: want at least one of type %s", strings.Join(types, ", "))
	}
	return named, nil
}
