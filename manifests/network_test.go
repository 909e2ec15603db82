package manifests_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// allowances are the ports that policies open for a Pod, by direction; "any"
// for a rule without ports or a port without a number.
type allowances struct{ ingress, egress map[string]bool }

func policiesFor(t *testing.T, all objects, namespace string, pod map[string]string) allowances {
	t.Helper()
	out := allowances{ingress: map[string]bool{}, egress: map[string]bool{}}
	for _, o := range all.ofKind("NetworkPolicy") {
		policy := as[networkingv1.NetworkPolicy](t, o)
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		require.NoError(t, err)
		if policy.Namespace != namespace || !selector.Matches(labels.Set(pod)) {
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			require.NotEmpty(t, rule.From, "%s: from whom?", policy.Name)
			open(out.ingress, rule.Ports)
		}
		for _, rule := range policy.Spec.Egress {
			open(out.egress, rule.Ports)
		}
	}
	return out
}

func open(ports map[string]bool, rule []networkingv1.NetworkPolicyPort) {
	if len(rule) == 0 {
		ports["any"] = true
	}
	for _, port := range rule {
		if port.Port == nil {
			ports["any "+string(*port.Protocol)] = true
			continue
		}
		ports[port.Port.String()+" "+string(*port.Protocol)] = true
	}
}

func ports(list ...string) map[string]bool {
	out := map[string]bool{}
	for _, port := range list {
		out[port] = true
	}
	return out
}

// scraped adds the ops ports, which one policy opens for all of our Pods.
func scraped(list ...string) map[string]bool {
	return ports(append(list, "8081 TCP", "8082 TCP", "8083 TCP", "8086 TCP")...)
}

func TestNamespacesDenyByDefault(t *testing.T) {
	for name, all := range renderAll(t) {
		denied := map[string]bool{}
		for _, o := range all.ofKind("NetworkPolicy") {
			policy := as[networkingv1.NetworkPolicy](t, o)
			if policy.Name != "default-deny" {
				continue
			}
			assert.Equal(t, networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			}, policy.Spec)
			denied[policy.Namespace] = true
		}
		assert.Equal(t, map[string]bool{system: true, fleet: true}, denied, name)
	}
}

// What is open is what each process needs.
func TestWhatIsOpen(t *testing.T) {
	all := renderAll(t)
	api, dns := []string{"443 TCP", "6443 TCP"}, []string{"53 UDP", "53 TCP"}
	for _, tt := range []struct {
		variant, process string
		ingress, egress  map[string]bool
	}{
		{"release", "webhooks", ports("8443 TCP"), ports(api...)},
		{"release", "prober", ports(), ports("any TCP", "53 UDP")},
		{"release", "discovery", ports("8090 TCP"), ports(api...)},
		{"redis", "discovery", ports("8090 TCP"), ports(slices.Concat(api, dns, []string{"6379 TCP"})...)},
		{"gcp", "webhooks", scraped("8443 TCP"), ports(slices.Concat(api, dns, []string{"80 TCP", "988 TCP"})...)},
		{"monitoring", "prober", scraped(), ports("any TCP", "53 UDP")},
		{"monitoring", "discovery", scraped("8090 TCP"), ports(api...)},
	} {
		t.Run(tt.variant+"/"+tt.process, func(t *testing.T) {
			pod := podTemplate(t, all[tt.variant].workloads().named(t, tt.process)).Labels
			got := policiesFor(t, all[tt.variant], system, pod)
			assert.Equal(t, tt.ingress, got.ingress)
			assert.Equal(t, tt.egress, got.egress)
		})
	}
}

// The labels that webhooks puts on its Pods are those that the policy selects.
func TestProxiesAreOpenToCrawlersAlone(t *testing.T) {
	all := renderAll(t)["release"]
	got := policiesFor(t, all, fleet, map[string]string{"app.kubernetes.io/name": "crawl-proxy"})
	assert.Equal(t, ports("any TCP"), got.ingress, "a Proxy may have any port")
	assert.Equal(t, ports("53 UDP", "53 TCP", "80 TCP", "443 TCP"), got.egress)
	nobody := policiesFor(t, all, fleet, map[string]string{"app.kubernetes.io/name": "other"})
	assert.Equal(t, allowances{ingress: ports(), egress: ports()}, nobody)

	policy := as[networkingv1.NetworkPolicy](t, all.find(t, "NetworkPolicy", "crawl-proxy"))
	var closed []string
	for _, peer := range policy.Spec.Egress[1].To {
		closed = append(closed, peer.IPBlock.Except...)
	}
	assert.Subset(t, closed, []string{"10.0.0.0/8", "169.254.0.0/16", "fc00::/7"})
}

// A Service leads to a Pod's port.
func TestServicesLeadToPods(t *testing.T) {
	for name, all := range renderAll(t) {
		for _, o := range all.ofKind("Service") {
			service := as[corev1.Service](t, o)
			workload := all.workloads().named(t, service.Name)
			assert.True(t, labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(podTemplate(t, workload).Labels)), name)
			declared := map[string]int32{}
			for _, c := range podSpec(t, workload).Containers {
				for _, port := range c.Ports {
					declared[port.Name] = port.ContainerPort
				}
			}
			for _, port := range service.Spec.Ports {
				assert.Equal(t, port.Port, declared[port.TargetPort.String()], "%s: %s", name, service.Name)
			}
		}
	}
}
