package webhooks

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ErrBadProviders: the provider config cannot be used as it is.
var ErrBadProviders = errors.New("bad provider config")

// TypeKubernetes is the provider type that runs proxies as Pods.
const TypeKubernetes = "kubernetes"

// Defaults of a kubernetes provider.
const (
	defaultCPU        = "100m"
	defaultMemory     = "128Mi"
	defaultPullPolicy = corev1.PullIfNotPresent
)

// Providers is the provider config, by name.
type Providers map[string]*Provider

// Provider is one validated entry of the provider config.
type Provider struct {
	// Name is what spec.provider of a Proxy says.
	Name string
	// Kubernetes says how its Pods look.
	Kubernetes KubernetesProvider

	// access is the rules of its squids, which are the same for all of them and
	// take longer to write than the rest of a Pod.
	access     string
	accessOnce sync.Once
}

// squidConfig is the configuration of a squid that listens on port.
func (p *Provider) squidConfig(port int32) string {
	p.accessOnce.Do(func() {
		k := &p.Kubernetes
		p.access = squidAccess(squidRules{allowClients: k.AllowClients, allowPorts: k.AllowPorts, allowDestinations: k.AllowDestinations})
	})
	return squidConfig(port, p.access)
}

// KubernetesProvider says how the Pods of a provider look.
type KubernetesProvider struct {
	// Image runs squid; it has /bin/sh and a squid that starts as user 13.
	Image string
	// ImagePullPolicy of it.
	ImagePullPolicy corev1.PullPolicy
	// CPU is requested; Memory is requested and the limit.
	CPU, Memory resource.Quantity
	// AllowClients may use the proxies; nobody else.
	AllowClients []netip.Prefix
	// AllowDestinations opens destinations that are closed by default: private,
	// loopback and link-local ranges.
	AllowDestinations []netip.Prefix
	// AllowPorts are the only destination ports.
	AllowPorts []int
}

// maxProvidersFile is more than any provider config needs, in bytes.
const maxProvidersFile = 1 << 20

// LoadProviders reads the provider config at path. The error unwraps to
// ErrBadProviders when the content is wrong, and then lists everything that is.
func LoadProviders(path string) (Providers, error) {
	b, err := readConfig(path)
	if err != nil {
		return nil, fmt.Errorf("read provider config: %w", err)
	}
	p, err := ParseProviders(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// readConfig reads the file at path, unless it is larger than any provider
// config: a device or a log given by mistake would fill the memory.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProvidersFile+1))
	if err == nil && len(b) > maxProvidersFile {
		err = fmt.Errorf("%s has more than %d bytes; is it the provider config?", path, maxProvidersFile)
	}
	return b, err
}

// ParseProviders is LoadProviders for a config in memory.
func ParseProviders(text []byte) (Providers, error) {
	file, err := decodeProviders(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadProviders, err)
	}
	if file.Providers == nil {
		return nil, fmt.Errorf("%w: providers: is missing; list at least one, or write \"providers: []\" for External proxies alone", ErrBadProviders)
	}
	out, problems := Providers{}, problems{}
	for i, entry := range *file.Providers {
		at := fmt.Sprintf("providers[%d]", i)
		if out[entry.Name] != nil {
			problems.add(at+".name", "%q is taken by an earlier entry; names must differ", entry.Name)
			continue
		}
		out[entry.Name] = entry.provider(at, &problems)
	}
	if err := problems.err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadProviders, err)
	}
	return out, nil
}

// decodeProviders refuses unknown and repeated keys, all of them with their
// paths.
func decodeProviders(text []byte) (*providersFile, error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var file providersFile
	strict, err := kjson.UnmarshalStrict(asJSON, &file)
	return &file, errors.Join(append(strict, err)...)
}

// problems collects everything that is wrong, each with its place.
type problems struct{ all []error }

func (p *problems) add(at, format string, args ...any) {
	p.all = append(p.all, fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...)))
}

func (p *problems) err() error { return errors.Join(p.all...) }
