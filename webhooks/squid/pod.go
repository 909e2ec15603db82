// Package squid builds the Pod that serves a Proxy, and its squid.conf.
package squid

import (
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Template is the part of the Pods that the provider config sets.
type Template struct {
	// Provider is the provider's name, for a label.
	Provider string
	// Image runs squid; it has /bin/sh and a squid that starts as user 13.
	Image string
	// ImagePullPolicy of it.
	ImagePullPolicy corev1.PullPolicy
	// CPU is requested; Memory is requested and the limit.
	CPU, Memory resource.Quantity
	// AllowClients are the only clients that may use the proxies.
	AllowClients []netip.Prefix
	// AllowDestinations opens destinations that are closed by default: private,
	// loopback and link-local ranges.
	AllowDestinations []netip.Prefix
	// AllowPorts are the only destination ports, for CONNECT and plain requests.
	AllowPorts []int

	// access caches the access rules: they are the same for all Pods, and take
	// longer to write than the rest of a Pod.
	access     string
	accessOnce sync.Once
}

// config is the configuration of a squid that listens on port.
func (t *Template) config(port int32) string {
	t.accessOnce.Do(func() { t.access = accessRules(t) })
	return config(port, t.access)
}

// runVolume holds what squid writes: its configuration, copied from the
// environment at the start, and its pid.
const (
	runVolume     = "run"
	runVolumeSize = "16Mi"
	startSquid    = `printf '%s' "$` + v1alpha1.PodConfigEnv + `" > ` + v1alpha1.PodRunDir + `/squid.conf && exec squid -N -f ` + v1alpha1.PodRunDir + `/squid.conf`
)

// squidUser is the user "proxy" of Debian's and Ubuntu's squid packages.
const squidUser int64 = 13

// firstOrdinaryPort is the lowest port that an ordinary user may listen on.
const firstOrdinaryPort = 1024

// object and list are JSON as Unstructured holds it.
type (
	object = map[string]any
	list   = []any
)

// Pod returns the Pod that serves proxy. The squid configuration is in its
// environment, so that the Pod is the only object to create and to delete.
//
// It is built in the form that is encoded. A conversion of the typed form would
// cost as much as the rest of an answer, and add empty fields.
func (t *Template) Pod(proxy *v1alpha1.Proxy, specHash string) *unstructured.Unstructured {
	port := proxy.EffectivePort()
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata": object{
			"name":      v1alpha1.InstanceName(proxy.UID),
			"namespace": proxy.Namespace,
			"labels": object{
				"app.kubernetes.io/name": "crawl-proxy",
				v1alpha1.LabelUID:        string(proxy.UID),
				v1alpha1.LabelProvider:   t.Provider,
			},
			"annotations": object{v1alpha1.AnnotationSpecHash: specHash},
		},
		"spec": object{
			"containers":                   list{t.container(port)},
			"restartPolicy":                "Always",
			"automountServiceAccountToken": false,
			"enableServiceLinks":           false,
			"securityContext":              podSecurity(port),
			"volumes":                      list{object{"name": runVolume, "emptyDir": object{"sizeLimit": runVolumeSize}}},
		},
	}}
}

func (t *Template) container(port int32) object {
	return object{
		"name":            v1alpha1.PodContainer,
		"image":           t.Image,
		"imagePullPolicy": string(t.ImagePullPolicy),
		"command":         list{"/bin/sh", "-c", startSquid},
		"env":             list{object{"name": v1alpha1.PodConfigEnv, "value": t.config(port)}},
		"ports":           list{object{"name": v1alpha1.PodPort, "containerPort": int64(port), "protocol": "TCP"}},
		"resources": object{
			"requests": object{"cpu": canonical(t.CPU), "memory": canonical(t.Memory)},
			"limits":   object{"memory": canonical(t.Memory)},
		},
		"volumeMounts": list{object{"name": runVolume, "mountPath": v1alpha1.PodRunDir}},
		"securityContext": object{
			"allowPrivilegeEscalation": false,
			"readOnlyRootFilesystem":   true,
			"capabilities":             object{"drop": list{"ALL"}},
		},
	}
}

// canonical is the form in which the API server stores a quantity. String writes
// into its receiver, and a Template is shared, so q is a copy.
func canonical(q resource.Quantity) string { return q.String() }

// podSecurity satisfies the Pod Security Standard "restricted". Its one sysctl,
// which that standard permits, replaces a capability on low ports.
func podSecurity(port int32) object {
	s := object{
		"runAsNonRoot":   true,
		"runAsUser":      squidUser,
		"runAsGroup":     squidUser,
		"seccompProfile": object{"type": "RuntimeDefault"},
	}
	if port < firstOrdinaryPort {
		s["sysctls"] = list{object{"name": "net.ipv4.ip_unprivileged_port_start", "value": fmt.Sprint(port)}}
	}
	return s
}
