package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
)

// Constructor makes the Cloud of one entry of the provider config, for instances
// with that installation label. Its error names the wrong field; it makes no call
// to the cloud.
type Constructor func(ctx context.Context, e providers.Entry, installation string) (Cloud, error)

// Registry holds the constructor of every type.
type Registry map[string]Constructor

// Named is a provider of the provider config.
type Named struct {
	Name string // in the provider config
	Type string // in the provider config
	Cloud
}

// Close releases the provider's connections, if it has any.
func (n Named) Close() error {
	if c, ok := n.Cloud.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Load reads the provider config at path and makes its providers in their order,
// except those of type kubernetes, which the hooks run. Any error refuses the whole
// file; it lists everything that is wrong.
func (r Registry) Load(ctx context.Context, path, installation string) ([]Named, error) {
	text, err := providers.Read(path)
	if err != nil {
		return nil, fmt.Errorf("provider config: %w", err)
	}
	named, err := r.Build(ctx, text, installation)
	if err != nil {
		return nil, fmt.Errorf("provider config %s: %w", path, err)
	}
	return named, nil
}

// Build makes the providers of a provider config, as Load does.
func (r Registry) Build(ctx context.Context, text []byte, installation string) ([]Named, error) {
	types := slices.Sorted(maps.Keys(r))
	entries, err := providers.Parse(text, append(slices.Clone(types), providers.TypeKubernetes)...)
	if err != nil {
		return nil, err
	}
	var named []Named
	var problems []error
	for i, e := range entries {
		if e.Type == providers.TypeKubernetes {
			continue
		}
		c, err := r[e.Type](ctx, e, installation)
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
