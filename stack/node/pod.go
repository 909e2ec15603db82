package node

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

const (
	// containerName is the one container that this node can run.
	containerName = "squid"
	// configEnv of that container holds the squid configuration.
	configEnv = "SQUID_CONF"
)

// action is what the node has to do about a Pod.
type action int

const (
	// ignore: the Pod is none of ours, or has ended.
	ignore action = iota
	// bind: nobody runs it yet.
	bind
	// runPod: it shall run here.
	runPod
	// terminate: it shall end.
	terminate
)

// actionFor decides by the Pod alone.
func actionFor(pod *corev1.Pod, nodeName string) action {
	switch {
	case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil:
		return bind
	case pod.Spec.NodeName != nodeName:
		return ignore // an unbound Pod is deleted by the API server itself
	case pod.DeletionTimestamp != nil:
		return terminate
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		return ignore
	}
	return runPod
}

// podConfig returns the squid configuration that the Pod carries, or an error
// that says why this node cannot run it. Nothing about that changes during a
// Pod's life.
func podConfig(pod *corev1.Pod) (string, error) {
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) > 0 || pod.Spec.Containers[0].Name != containerName {
		return "", fmt.Errorf("this node runs Pods with one container named %q and nothing else", containerName)
	}
	for _, env := range pod.Spec.Containers[0].Env {
		switch {
		case env.Name != configEnv:
		case env.ValueFrom != nil:
			return "", fmt.Errorf("environment variable %s must be a plain value", configEnv)
		case env.Value == "":
			return "", fmt.Errorf("environment variable %s is empty", configEnv)
		default:
			return env.Value, nil
		}
	}
	return "", errors.New("container " + containerName + " has no environment variable " + configEnv)
}
