// Package config reads the files of the hook service: the provider config, the
// bearer tokens and the TLS certificate. Tokens and certificate are reloaded when
// their files change.
package config

import (
	"errors"
	"fmt"
	"slices"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/squid"
)

// ErrBadProviders: the provider config is invalid.
var ErrBadProviders = errors.New("bad provider config")

// Providers is the provider config, by name.
type Providers map[string]*Provider

// Provider is one validated provider. Cloud is nil when it runs Pods.
type Provider struct {
	proxy.Provider
	// Pods is the template of its Pods, nil when it runs VMs.
	Pods *squid.Template
}

// CloudProviders returns the names of the providers whose instances the cloud
// adapter creates, sorted.
func (p Providers) CloudProviders() []string {
	var names []string
	for name, provider := range p {
		if provider.IsCloud() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// LoadProviders reads the provider config at path. For invalid content the error
// unwraps to ErrBadProviders and lists every problem.
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
	parsed, err := providers.Parse(text, providers.TypeKubernetes, providers.TypeGCP)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadProviders, err)
	}
	out, problems := Providers{}, problems{}
	for i, e := range parsed {
		out[e.Name] = readProvider(e, providers.Place(i), &problems)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadProviders, err)
	}
	return out, nil
}

// readProvider checks a provider's block.
func readProvider(e providers.Entry, at string, p *problems) *Provider {
	decode := func(into any) {
		if err := e.Decode(into); err != nil {
			p.add(at, "%w", err)
		}
	}
	if e.Type == providers.TypeGCP {
		cfg := &providers.GCP{}
		decode(cfg)
		if err := cfg.Complete(); err != nil {
			p.add(at, "%w", err)
		}
		return &Provider{Provider: proxy.Provider{Cloud: cfg}}
	}
	var block kubernetesBlock
	decode(&block)
	return &Provider{Pods: block.template(e.Name, at+"."+e.Type, p)}
}

// problems collects validation errors, each with its place.
type problems []error

func (p *problems) add(at, format string, args ...any) {
	*p = append(*p, fmt.Errorf("%s: %w", at, fmt.Errorf(format, args...)))
}
