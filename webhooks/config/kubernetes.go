package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/squid"
)

// kubernetesBlock is the kubernetes block of a provider.
type kubernetesBlock struct {
	Image             string   `json:"image"`
	ImagePullPolicy   string   `json:"imagePullPolicy"`
	CPU               string   `json:"cpu"`
	Memory            string   `json:"memory"`
	AllowClients      []string `json:"allowClients"`
	AllowDestinations []string `json:"allowDestinations"`
	AllowPorts        []int    `json:"allowPorts"`
}

// template validates the block of the provider name.
func (e *kubernetesBlock) template(name, at string, p *problems) *squid.Template {
	if e.Image == "" {
		p.add(at+".image", "is missing; name an image with squid 5 or later in it")
	}
	if len(e.AllowClients) == 0 {
		p.add(at+".allowClients", "is missing; list the CIDR ranges that your crawlers connect from, such as the cluster's Pod range")
	}
	return &squid.Template{
		Provider:          name,
		Image:             e.Image,
		ImagePullPolicy:   pullPolicy(at+".imagePullPolicy", e.ImagePullPolicy, p),
		CPU:               quantity(at+".cpu", e.CPU, "100m", p),
		Memory:            quantity(at+".memory", e.Memory, "128Mi", p),
		AllowClients:      ranges(at+".allowClients", e.AllowClients, "makes this an open proxy, which strangers find within hours", p),
		AllowDestinations: ranges(at+".allowDestinations", e.AllowDestinations, "opens the metadata servers and everything else in the network to crawlers", p),
		AllowPorts:        ports(at+".allowPorts", e.AllowPorts, p),
	}
}

func pullPolicy(at, value string, p *problems) corev1.PullPolicy {
	switch policy := corev1.PullPolicy(value); policy {
	case "":
		return corev1.PullIfNotPresent
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
		return policy
	}
	p.add(at, "is %q, want Always, IfNotPresent or Never", value)
	return ""
}

func quantity(at, value, fallback string, p *problems) resource.Quantity {
	value = cmp.Or(value, fallback)
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
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

// widest is the shortest prefix that a range may have: that of the largest
// private ranges, 10.0.0.0/8 and fc00::/7. It excludes 0.0.0.0/0 and ::/0, and
// their halves and quarters.
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
