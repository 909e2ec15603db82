package controlplane

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"runtime"

	"k8s.io/utils/clock"
)

const (
	kubeletBinary    = "kubelet"
	controllerBinary = "kube-controller-manager"
	schedulerBinary  = "kube-scheduler"
)

// NodeAssets are the programs that a real node needs beside a control plane, as
// absolute paths.
type NodeAssets struct {
	// Kubelet runs Pods.
	Kubelet string
	// ControllerManager makes Pods of Deployments, and service accounts.
	ControllerManager string
	// Scheduler gives Pods their node.
	Scheduler string
}

// EnsureNode finds a node's programs in the cache folder, or builds them, which takes minutes the
// first time. progress receives a line per step.
func EnsureNode(ctx context.Context, progress io.Writer) (NodeAssets, error) {
	root, err := checkout()
	if err != nil {
		return NodeAssets{}, err
	}
	src, err := readSource(filepath.Join(root, "stack", "controlplane", "kubelet"), kubernetesModule)
	if err != nil {
		return NodeAssets{}, err
	}
	cached, err := cacheRoot()
	if err != nil {
		return NodeAssets{}, err
	}
	dir := filepath.Join(cached, fmt.Sprintf("node-%s-%s-%s", src.version, runtime.GOARCH, hex.EncodeToString(src.digest[:4])))
	b := &builder{
		cache: cache{dir: dir}, what: "kubelet, controller manager and scheduler",
		targets: nodeTargets(src), progress: progress, clock: clock.RealClock{},
	}
	if err := b.build(ctx); err != nil {
		return NodeAssets{}, err
	}
	return NodeAssets{Kubelet: filepath.Join(dir, kubeletBinary), ControllerManager: filepath.Join(dir, controllerBinary), Scheduler: filepath.Join(dir, schedulerBinary)}, nil
}

func nodeTargets(src source) []target {
	flags := "-s -w " + versionFlags(src.version)
	return []target{
		{binary: controllerBinary, pkg: kubernetesModule + "/cmd/kube-controller-manager", source: src, ldflags: flags},
		{binary: schedulerBinary, pkg: kubernetesModule + "/cmd/kube-scheduler", source: src, ldflags: flags},
		{binary: kubeletBinary, pkg: kubernetesModule + "/cmd/kubelet", source: src, ldflags: flags},
	}
}

// checkout is the root of our sources.
func checkout() (string, error) {
	from := startingPoints()
	for _, dir := range from {
		if root, ok := checkoutAbove(dir); ok {
			return root, nil
		}
	}
	return "", fmt.Errorf("none of %v is in a checkout of the project, which pins what is built", from)
}
