package webhooks

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// ErrBadProviders: the provider config cannot be used as it is.
var ErrBadProviders = errors.New("bad provider config")

// Defaults of a kubernetes provider.
const (
	defaultCPU        = "100m"
	defaultMemory     = "128Mi"
	defaultPullPolicy = corev1.PullIfNotPresent
)

// Providers is the provider config, by name.
type Providers map[string]*Provider

// Outside returns the names of the providers that the cloud adapter runs,
// sorted.
func (p Providers) Outside() []string {
	var names []string
	for name, provider := range p {
		if provider.outside() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Provider is one validated entry of the provider config.
type Provider struct {
	// Name is what spec.provider of a Proxy says.
	Name string
	// Kubernetes says how its Pods look.
	Kubernetes KubernetesProvider
	// Cloud knows what its VMs need, and is nil when it runs Pods.
	Cloud Cloud

	// access is the rules of its squids, which are the same for all of them and
	// take longer to write than the rest of a Pod.
	access     string
	accessOnce sync.Once
}

// Cloud is a type of providers whose instances are VMs. The cloud adapter makes
// them; the hooks need not know more of it than this.
type Cloud interface {
	// Check says why no VM can be made from that placement and user data,
	// whatever the cloud would answer. It quotes no user data.
	Check(p v1alpha1.Placement, userData string) error
}

// outside reports whether the cloud adapter makes the provider's instances.
func (p *Provider) outside() bool { return p != nil && p.Cloud != nil }

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

// LoadProviders reads the provider config at path. The error unwraps to
// ErrBadProviders when the content is wrong, and then lists everything that is.
func LoadProviders(path string) (Providers, error) {
	b, err := providers.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read provider config: %w", err)
	}
	p, err := ParseProviders(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// ParseProviders is LoadProviders for a config in memory.
func ParseProviders(text []byte) (Providers, error) {
	entries, err := providers.Parse(text, providers.TypeKubernetes, providers.TypeGCP)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadProviders, err)
	}
	out, problems := Providers{}, problems{}
	for i, e := range entries {
		out[e.Name] = readProvider(e, providers.Place(i), &problems)
	}
	if err := problems.err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadProviders, err)
	}
	return out, nil
}

// problems collects everything that is wrong, each with its place.
type problems struct{ all []error }

func (p *problems) add(at, format string, args ...any) {
	p.all = append(p.all, fmt.Errorf("%s: %w", at, fmt.Errorf(format, args...)))
}

func (p *problems) err() error { return errors.Join(p.all...) }
