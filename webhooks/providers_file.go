package webhooks

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
)

// kubernetesEntry is the kubernetes block as written.
type kubernetesEntry struct {
	Image             string   `json:"image"`
	ImagePullPolicy   string   `json:"imagePullPolicy"`
	CPU               string   `json:"cpu"`
	Memory            string   `json:"memory"`
	AllowClients      []string `json:"allowClients"`
	AllowDestinations []string `json:"allowDestinations"`
	AllowPorts        []int    `json:"allowPorts"`
}

// readProvider checks an entry's block.
func readProvider(e providers.Entry, at string, p *problems) *Provider {
	out := &Provider{Name: e.Name}
	if e.Type == providers.TypeGCP {
		cfg := &providers.GCP{}
		decodeBlock(e, at, cfg, p)
		if err := cfg.Complete(); err != nil {
			p.add(at, "%w", err)
		}
		out.Cloud = cfg
		return out
	}
	var block kubernetesEntry
	decodeBlock(e, at, &block, p)
	out.Kubernetes = block.validate(at+"."+e.Type, p)
	return out
}

func decodeBlock(e providers.Entry, at string, into any, p *problems) {
	if err := e.Decode(into); err != nil {
		p.add(at, "%w", err)
	}
}

func (e *kubernetesEntry) validate(at string, p *problems) KubernetesProvider {
	if e.Image == "" {
		p.add(at+".image", "is missing; name an image with squid 5 or later in it")
	}
	if len(e.AllowClients) == 0 {
		p.add(at+".allowClients", "is missing; list the CIDR ranges that your crawlers connect from, such as the cluster's Pod range")
	}
	return KubernetesProvider{
		Image:             e.Image,
		ImagePullPolicy:   pullPolicy(at+".imagePullPolicy", e.ImagePullPolicy, p),
		CPU:               quantity(at+".cpu", e.CPU, defaultCPU, p),
		Memory:            quantity(at+".memory", e.Memory, defaultMemory, p),
		AllowClients:      ranges(at+".allowClients", e.AllowClients, "makes this an open proxy, which strangers find within hours", p),
		AllowDestinations: ranges(at+".allowDestinations", e.AllowDestinations, "opens the metadata servers and everything else in the network to crawlers", p),
		AllowPorts:        ports(at+".allowPorts", e.AllowPorts, p),
	}
}

func pullPolicy(at, value string, p *problems) corev1.PullPolicy {
	switch policy := corev1.PullPolicy(value); policy {
	case "":
		return defaultPullPolicy
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
		return policy
	}
	p.add(at, "is %q, want Always, IfNotPresent or Never", value)
	return ""
}

func quantity(at, value, fallback string, p *problems) resource.Quantity {
	if value == "" {
		value = fallback
	}
	q, err := resource.ParseQuantity(value)
	if err != nil || q.Sign() <= 0 {
		p.add(at, "%q is not an amount above zero, such as %s", value, fallback)
	}
	return q
}

func ports(at string, values []int, p *problems) []int {
	if len(values) == 0 {
		return []int{80, 443}
	}
	for i, v := range values {
		if v < 1 || v > 65535 {
			p.add(fmt.Sprintf("%s[%d]", at, i), "%d is not a TCP port, 1 to 65535", v)
		}
	}
	return sortedUnique(values)
}

// widest is the shortest prefix that a range may have: that of the largest
// private ranges, 10.0.0.0/8 and fc00::/7. It keeps 0.0.0.0/0 and ::/0 out, and
// their halves and quarters as well.
func widest(a netip.Addr) int {
	if a.Is4() {
		return 8
	}
	return 7
}

func ranges(at string, values []string, tooWide string, p *problems) []netip.Prefix {
	var out []netip.Prefix
	for i, v := range values {
		at := fmt.Sprintf("%s[%d]", at, i)
		r, err := netip.ParsePrefix(v)
		switch {
		case err != nil:
			p.add(at, "%q is not a CIDR range, such as 10.0.0.0/8 or 192.0.2.7/32", v)
		case r.Addr().Is4In6():
			p.add(at, "%q is an IPv4 range in IPv6 notation; write it as IPv4", v)
		case r.Bits() < widest(r.Addr()):
			p.add(at, "%s %s; name narrower ranges, /%d at the widest", v, tooWide, widest(r.Addr()))
		case r != r.Masked():
			p.add(at, "%q has bits beyond its prefix; write %s, or %s/%d for the one address", v, r.Masked(), r.Addr(), r.Addr().BitLen())
		default:
			out = append(out, r)
		}
	}
	return out
}
