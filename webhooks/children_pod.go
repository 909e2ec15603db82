package webhooks

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Names inside the Pod that its observers look for.
const (
	containerName = "squid"
	portName      = "proxy"
	configEnv     = "SQUID_CONF"
)

// runVolume holds all that squid writes: its configuration, copied there from
// the environment at the start, and its pid.
const (
	runVolume     = "run"
	runPath       = "/run/squid"
	runVolumeSize = "16Mi"
	startSquid    = `printf '%s' "$` + configEnv + `" > ` + runPath + `/squid.conf && exec squid -N -f ` + runPath + `/squid.conf`
)

// squidUser is the user "proxy" of Debian's and Ubuntu's squid packages.
const squidUser int64 = 13

// firstOrdinaryPort is the lowest port that any user may listen on.
const firstOrdinaryPort = 1024

// podChild is the Pod that serves proxy. The squid configuration travels in the
// environment, so that the Pod is the one object to make and to remove.
func podChild(proxy *v1alpha1.Proxy, provider *Provider, specHash string) (*unstructured.Unstructured, error) {
	return toChild(&corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      v1alpha1.InstanceName(proxy.UID),
			Namespace: proxy.Namespace,
			Labels: map[string]string{
				"app.kubernetes.io/name": "crawl-proxy",
				v1alpha1.LabelUID:        string(proxy.UID),
				v1alpha1.LabelProvider:   provider.Name,
			},
			Annotations: map[string]string{v1alpha1.AnnotationSpecHash: specHash},
		},
		Spec: corev1.PodSpec{
			Containers:                   []corev1.Container{squidContainer(proxy, &provider.Kubernetes)},
			RestartPolicy:                corev1.RestartPolicyAlways,
			AutomountServiceAccountToken: ptr.To(false),
			EnableServiceLinks:           ptr.To(false),
			SecurityContext:              podSecurity(proxy.EffectivePort()),
			Volumes: []corev1.Volume{{Name: runVolume, VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse(runVolumeSize))},
			}}},
		},
	})
}

func squidContainer(proxy *v1alpha1.Proxy, k *KubernetesProvider) corev1.Container {
	port := proxy.EffectivePort()
	return corev1.Container{
		Name:            containerName,
		Image:           k.Image,
		ImagePullPolicy: k.ImagePullPolicy,
		Command:         []string{"/bin/sh", "-c", startSquid},
		Env: []corev1.EnvVar{{Name: configEnv, Value: squidConfig(squidRules{
			port:              port,
			allowClients:      k.AllowClients,
			allowPorts:        k.AllowPorts,
			allowDestinations: k.AllowDestinations,
		})}},
		Ports: []corev1.ContainerPort{{Name: portName, ContainerPort: port, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: k.CPU, corev1.ResourceMemory: k.Memory},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: k.Memory},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: runVolume, MountPath: runPath}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			ReadOnlyRootFilesystem:   ptr.To(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// podSecurity satisfies the Pod Security Standard "restricted". Its one sysctl,
// which that standard permits, stands in for a capability on low ports.
func podSecurity(port int32) *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{
		RunAsNonRoot:   ptr.To(true),
		RunAsUser:      ptr.To(squidUser),
		RunAsGroup:     ptr.To(squidUser),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if port < firstOrdinaryPort {
		s.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: fmt.Sprint(port)}}
	}
	return s
}

// keptPod names the Pod of proxy and says nothing about how it should be.
func keptPod(proxy *v1alpha1.Proxy) *unstructured.Unstructured {
	return identity("v1", "Pod", proxy.Namespace, v1alpha1.InstanceName(proxy.UID))
}
