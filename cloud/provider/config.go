package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kubernetesType is run by the hooks alone, which also check its block.
const kubernetesType = "kubernetes"

// maxConfigBytes bounds the provider config; a ConfigMap holds no more.
const maxConfigBytes = 1 << 20

// Entry is one provider of the provider config.
type Entry struct {
	// Name that Proxies use in spec.provider.
	Name string
	// Type is a key of the registry.
	Type string
	// Block is the type's own block as JSON, to be decoded strictly.
	Block json.RawMessage
}

// Decode reads the entry's block into v. Unknown, repeated and wrongly cased
// fields are errors.
func (e Entry) Decode(v any) error {
	strict, err := kjson.UnmarshalStrict(e.Block, v)
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	return nil
}

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
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("provider config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
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
	entries, err := r.parse(text)
	if err != nil {
		return nil, err
	}
	var named []Named
	var problems []error
	for i, e := range entries {
		if e.Type == kubernetesType {
			continue
		}
		c, err := r[e.Type](ctx, e, deps)
		if err != nil {
			problems = append(problems, fmt.Errorf("providers[%d] %q: %w", i, e.Name, err))
			continue
		}
		named = append(named, Named{Name: e.Name, Type: e.Type, Cloud: c})
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("no provider for this adapter: want at least one of type %s", r.types())
	}
	return named, nil
}

func (r Registry) parse(text []byte) ([]Entry, error) {
	if len(text) > maxConfigBytes {
		return nil, fmt.Errorf("more than %d bytes", maxConfigBytes)
	}
	var file struct {
		Providers []map[string]json.RawMessage `json:"providers"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("not valid: %w", err)
	}
	entries := make([]Entry, 0, len(file.Providers))
	seen := map[string]bool{}
	var problems []error
	for i, fields := range file.Providers {
		e, err := r.entry(fields)
		if err == nil && seen[e.Name] {
			err = fmt.Errorf("name %q is taken by another provider", e.Name)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("providers[%d]: %w", i, err))
			continue
		}
		seen[e.Name] = true
		entries = append(entries, e)
	}
	return entries, errors.Join(problems...)
}

func (r Registry) entry(fields map[string]json.RawMessage) (Entry, error) {
	var e Entry
	for field, into := range map[string]*string{"name": &e.Name, "type": &e.Type} {
		if err := json.Unmarshal(fields[field], into); err != nil || *into == "" {
			return e, fmt.Errorf("%s is required and must be text", field)
		}
	}
	if len(e.Name) > 63 {
		return e, fmt.Errorf("name %q is longer than 63 characters", e.Name[:63])
	}
	if _, known := r[e.Type]; !known && e.Type != kubernetesType {
		return e, fmt.Errorf("type %q is not known: want %s or %s", e.Type, r.types(), kubernetesType)
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if field != "name" && field != "type" && field != e.Type {
			return e, fmt.Errorf("unknown field %q in a provider of type %s", field, e.Type)
		}
	}
	e.Block = fields[e.Type]
	if len(e.Block) == 0 || e.Block[0] != '{' {
		return e, fmt.Errorf("the block %s is required", e.Type)
	}
	return e, nil
}

func (r Registry) types() string {
	return strings.Join(slices.Sorted(maps.Keys(r)), ", ")
}
