// Package providers is the provider config: the one file in which the hooks and the
// cloud adapter both read which providers spec.provider of a Proxy may name.
//
//	providers:
//	- name: pods                 # the name in spec.provider, a DNS label
//	  type: kubernetes           # run by the hooks alone
//	  kubernetes: {image: …}     # the type's own block
//	- name: gcp-eu
//	  type: gcp                  # run by the cloud adapter
//	  gcp: {project: …}
//
// Decoding is strict: unknown, duplicate and wrongly cased fields are errors, and
// every error names its place. Each process checks the blocks of the types that it
// runs; GCP is here because both processes check it.
package providers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Types of providers.
const (
	TypeKubernetes = "kubernetes" // runs proxies as Pods
	TypeGCP        = "gcp"        // runs them as VMs on Google Compute Engine
)

// MaxBytes bounds the file; a ConfigMap holds no more.
const MaxBytes = 1 << 20

// Entry is one provider of the provider config.
type Entry struct {
	Name  string          // in spec.provider of Proxies
	Type  string          // one of the types given to Parse
	Block json.RawMessage // the type's own block as JSON, to be decoded strictly
}

// Decode decodes the entry's block into v. Unknown, duplicate and wrongly cased
// fields are errors.
func (e Entry) Decode(v any) error {
	strict, err := kjson.UnmarshalStrict(e.Block, v)
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	return nil
}

// Read reads the file at path. A larger file than MaxBytes is an error, so that a
// device or a log given by mistake does not fill the memory.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("%s has more than %d bytes; is it the provider config?", path, MaxBytes)
	}
	return text, err
}

// Parse returns the entries of a provider config in their order. types are the valid
// ones. The error lists everything that is wrong outside of the blocks, each with its
// place.
func Parse(text []byte, types ...string) ([]Entry, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("more than %d bytes", MaxBytes)
	}
	file, err := decode(text)
	if err != nil {
		return nil, err
	}
	if file.Providers == nil {
		return nil, errors.New("providers: is missing; list at least one, or write \"providers: []\" for External proxies alone")
	}
	var entries []Entry
	var problems []error
	taken := map[string]bool{}
	for i, fields := range *file.Providers {
		e, err := readEntry(fields, types)
		if err == nil && taken[e.Name] {
			err = fmt.Errorf("name: %q is taken by an earlier entry; names must differ", e.Name)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s.%w", Place(i), err))
			continue
		}
		taken[e.Name] = true
		entries = append(entries, e)
	}
	return entries, errors.Join(problems...)
}

// Place is the name of the entry at that index in errors.
func Place(i int) string { return fmt.Sprintf("providers[%d]", i) }

type file struct {
	Providers *[]map[string]json.RawMessage `json:"providers"`
}

func decode(text []byte) (file, error) {
	var f file
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return f, fmt.Errorf("not valid YAML: %w", err)
	}
	strict, err := kjson.UnmarshalStrict(asJSON, &f)
	return f, errors.Join(append(strict, err)...)
}

// readEntry decodes an entry. Its error begins with the field's name.
func readEntry(fields map[string]json.RawMessage, types []string) (Entry, error) {
	var e Entry
	for _, f := range []struct {
		name string
		into *string
	}{{"name", &e.Name}, {"type", &e.Type}} {
		if err := json.Unmarshal(fields[f.name], f.into); err != nil || *f.into == "" {
			return e, fmt.Errorf("%s: is missing, or not text", f.name)
		}
	}
	if errs := validation.IsDNS1123Label(e.Name); len(errs) > 0 {
		return e, fmt.Errorf("name: %q: %s", e.Name, errs[0])
	}
	if !slices.Contains(types, e.Type) {
		return e, fmt.Errorf("type: is %q, want %s", e.Type, strings.Join(types, " or "))
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if field != "name" && field != "type" && field != e.Type {
			return e, fmt.Errorf("%s: does not fit type %s; take it out", field, e.Type)
		}
	}
	e.Block = fields[e.Type]
	if len(e.Block) == 0 || e.Block[0] != '{' {
		return e, fmt.Errorf("%s: is missing; a provider of type %s needs that block", e.Type, e.Type)
	}
	return e, nil
}
