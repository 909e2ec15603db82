package node

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// action is what a reconcile of a Pod does.
type action int

const (
	ignore    action = iota // the Pod belongs to another node, or has ended
	bind                    // the Pod has no node yet
	runPod                  // the Pod must run here
	terminate               // the Pod must end
)

// actionFor depends on the Pod alone.
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

// podConfig returns the squid.conf that the Pod carries, or why this node cannot run the Pod. Both
// are constant during a Pod's life.
func podConfig(pod *corev1.Pod) (string, error) {
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) > 0 || pod.Spec.Containers[0].Name != v1alpha1.PodContainer {
		return "", fmt.Errorf("this node runs Pods with one container named %q and nothing else", v1alpha1.PodContainer)
	}
	for _, env := range pod.Spec.Containers[0].Env {
		switch {
		case env.Name != v1alpha1.PodConfigEnv:
		case env.ValueFrom != nil:
			return "", fmt.Errorf("environment variable %s must be a plain value", v1alpha1.PodConfigEnv)
		case env.Value == "":
			return "", fmt.Errorf("environment variable %s is empty", v1alpha1.PodConfigEnv)
		default:
			return env.Value, nil
		}
	}
	return "", errors.New("container " + v1alpha1.PodContainer + " has no environment variable " + v1alpha1.PodConfigEnv)
}
