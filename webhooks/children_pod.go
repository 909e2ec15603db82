package webhooks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// runVolume holds all that squid writes: its configuration, copied there from
// the environment at the start, and its pid.
const (
	runVolume     = "run"
	runVolumeSize = "16Mi"
	startSquid    = `printf '%s' "$` + v1alpha1.PodConfigEnv + `" > ` + v1alpha1.PodRunDir + `/squid.conf && exec squid -N -f ` + v1alpha1.PodRunDir + `/squid.conf`
)

// squidUser is the user "proxy" of Debian's and Ubuntu's squid packages.
const squidUser int64 = 13

// firstOrdinaryPort is the lowest port that any user may listen on.
const firstOrdinaryPort = 1024

// object and list are JSON as Unstructured holds it.
type (
	object = map[string]any
	list   = []any
)

// podChild is the Pod that serves proxy. The squid configuration travels in the
// environment, so that the Pod is the one object to make and to remove.
//
// It is written down as it goes on the wire: the typed form would have to be
// converted, at the cost of all the rest of an answer, and freed of the empty
// fields that the conversion adds.
func podChild(proxy *v1alpha1.Proxy, provider *Provider, specHash string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata": object{
			"name":      v1alpha1.InstanceName(proxy.UID),
			"namespace": proxy.Namespace,
			"labels": object{
				"app.kubernetes.io/name": "crawl-proxy",
				v1alpha1.LabelUID:        string(proxy.UID),
				v1alpha1.LabelProvider:   provider.Name,
			},
			"annotations": object{v1alpha1.AnnotationSpecHash: specHash},
		},
		"spec": object{
			"containers":                   list{squidContainer(proxy.EffectivePort(), provider)},
			"restartPolicy":                "Always",
			"automountServiceAccountToken": false,
			"enableServiceLinks":           false,
			"securityContext":              podSecurity(proxy.EffectivePort()),
			"volumes":                      list{object{"name": runVolume, "emptyDir": object{"sizeLimit": runVolumeSize}}},
		},
	}}
}

func squidContainer(port int32, provider *Provider) object {
	k := &provider.Kubernetes
	return object{
		"name":            v1alpha1.PodContainer,
		"image":           k.Image,
		"imagePullPolicy": string(k.ImagePullPolicy),
		"command":         list{"/bin/sh", "-c", startSquid},
		"env":             list{object{"name": v1alpha1.PodConfigEnv, "value": provider.squidConfig(port)}},
		"ports":           list{object{"name": v1alpha1.PodPort, "containerPort": int64(port), "protocol": "TCP"}},
		"resources": object{
			"requests": object{"cpu": canonical(k.CPU), "memory": canonical(k.Memory)},
			"limits":   object{"memory": canonical(k.Memory)},
		},
		"volumeMounts": list{object{"name": runVolume, "mountPath": v1alpha1.PodRunDir}},
		"securityContext": object{
			"allowPrivilegeEscalation": false,
			"readOnlyRootFilesystem":   true,
			"capabilities":             object{"drop": list{"ALL"}},
		},
	}
}

// canonical is the form in which the API server stores a quantity. The copy
// matters: String writes into its receiver, and a provider is shared.
func canonical(q resource.Quantity) string { return q.String() }

// podSecurity satisfies the Pod Security Standard "restricted". Its one sysctl,
// which that standard permits, stands in for a capability on low ports.
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

// keptPod names the Pod of proxy and says nothing about how it should be.
func keptPod(proxy *v1alpha1.Proxy) *unstructured.Unstructured {
	return identity("v1", "Pod", proxy.Namespace, v1alpha1.InstanceName(proxy.UID))
}
