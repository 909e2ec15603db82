package fleet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
)

// Health check of every Proxy: verdicts must be quick, but 200 probes per interval must
// leave the machine time for other work.
const (
	interval = 4 * time.Second
	timeout  = 2 * time.Second
	failures = 2
)

// kind of a Proxy, the prefix of its name.
type kind string

const (
	kindExternal kind = "external"
	kindPod      kind = "pod"
	kindVM       kind = "vm"
)

// names returns the names of n Proxies of a kind.
func names(k kind, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%03d", k, i)
	}
	return out
}

// scarce is the size of the pool that crawlers compete for: leases there are refused,
// wait, and follow each other on one proxy.
const scarce = 6

// Selectors of lease requests, repeated by their weight.
func Selectors() []map[string]string {
	crowd := map[string]string{"pool": "scarce"}
	return []map[string]string{
		crowd, crowd, crowd, crowd,
		{"geo": "eu"}, {"geo": "us"}, {"geo": "asia"}, {"tier": "gold"}, {"tier": "silver"},
		{"geo": "eu", "tier": "gold"}, {"kind": string(kindPod)}, {"kind": string(kindVM)},
	}
}

var geos = []string{"eu", "us", "asia"}

// Zones of the VMs, which the Compute Engine stand-in has.
var Zones = []string{"europe-west1-b", "europe-west1-c", "europe-west1-d", "us-central1-a"}

// proxy is the first version of the Proxy of that name.
func (f *Fleet) proxy(name string) *v1alpha1.Proxy {
	var k kind
	var n int
	if _, err := fmt.Sscanf(strings.Replace(name, "-", " ", 1), "%s %d", &k, &n); err != nil {
		panic(fmt.Sprintf("fleet: no Proxy is called %q", name)) // names are ours
	}
	p := &v1alpha1.Proxy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.cfg.Namespace},
		Spec: v1alpha1.ProxySpec{
			Mode:      v1alpha1.ModeManaged,
			MaxLeases: ptr.To(int32(1 + n%4)),
			Attributes: map[string]v1alpha1.AttributeValue{
				"geo": v1alpha1.AttributeValue(geos[n%3]), "tier": tier(n), "kind": v1alpha1.AttributeValue(k),
			},
			HealthCheck: &v1alpha1.HealthCheck{
				ProbeURL: f.cfg.ProbeURL, Interval: metav1.Duration{Duration: interval}, Timeout: metav1.Duration{Duration: timeout},
				FailureThreshold: failures,
			},
		},
	}
	switch k {
	case kindExternal:
		p.Spec.Mode = v1alpha1.ModeExternal
		p.Spec.Endpoint = endpoint(f.externals[name][0])
		if n < scarce {
			p.Spec.Attributes["pool"] = "scarce"
		}
	case kindPod:
		p.Spec.Provider = f.cfg.Provider
	case kindVM:
		p.Spec.Provider = f.cfg.CloudProvider
		p.Spec.Placement = &v1alpha1.Placement{Zone: Zones[n%4], MachineType: "e2-micro", Image: "projects/demo/global/images/proxy"}
	}
	return p
}

func tier(n int) v1alpha1.AttributeValue {
	if n%2 == 0 {
		return "gold"
	}
	return "silver"
}

// endpoint is the address of an External proxy.
func endpoint(p *external.Proxy) *v1alpha1.Endpoint {
	addr := netip.MustParseAddrPort(p.Addr())
	return &v1alpha1.Endpoint{Host: addr.Addr().String(), Port: int32(addr.Port())}
}

// edit is a merge patch that needs another instance, or one that does not.
func (f *Fleet) edit(p *v1alpha1.Proxy, replaces bool, pick uint64) map[string]any {
	spec := map[string]any{}
	switch {
	case !replaces && pick%3 == 0:
		spec["maxLeases"] = 1 + pick/3%5
	case !replaces && pick%3 == 1:
		spec["attributes"] = map[string]any{"tier": tier(int(pick / 3 % 2))}
	case !replaces:
		spec["healthCheck"] = map[string]any{"failureThreshold": failures + pick/3%2}
	case p.Spec.Mode == v1alpha1.ModeExternal:
		other := endpoint(f.externals[p.Name][0])
		if *p.Spec.Endpoint == *other {
			other = endpoint(f.externals[p.Name][1])
		}
		spec["endpoint"] = other
	case p.Spec.Provider == f.cfg.CloudProvider:
		spec["placement"] = editedPlacement(p, pick)
	default:
		spec["port"] = 3128 + (uint64(p.EffectivePort())-3128+1+pick%50)%60
	}
	return map[string]any{"spec": spec}
}

// editedPlacement moves a VM to another zone, or changes its disk.
func editedPlacement(p *v1alpha1.Proxy, pick uint64) map[string]any {
	if pick%2 == 0 {
		return map[string]any{"diskSizeGB": 10 + pick/2%90}
	}
	others := slices.DeleteFunc(slices.Clone(Zones), func(zone string) bool { return p.Spec.Placement != nil && zone == p.Spec.Placement.Zone })
	return map[string]any{"zone": others[pick/2%uint64(len(others))]}
}
