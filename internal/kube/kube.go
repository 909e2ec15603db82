// Package kube finds the API server.
package kube

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// namespaceFile has the namespace of a Pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Config returns the client configuration of the kubeconfig at path, or the
// Pod's own service account when path is empty. userAgent shows in the API
// server's audit log.
func Config(path, userAgent string) (cfg *rest.Config, err error) {
	if path == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("no --kubeconfig given and no service account found: %w", err)
		}
	} else if cfg, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", path, err)
	}
	cfg.UserAgent = userAgent
	return cfg, nil
}

// OwnNamespace is the namespace of this Pod, "default" outside a cluster.
func OwnNamespace() string { return namespaceIn(namespaceFile) }

func namespaceIn(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "default"
	}
	return strings.TrimSpace(string(b))
}
