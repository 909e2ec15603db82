// Package realnode runs a real Kubernetes node on this machine: containerd and
// runc from the system's packages, kubelet, scheduler and controller manager of the
// control plane's release. It needs Linux and root, and keeps to namespaces of
// its own: when the process ends, however it ends, so do all containers, and no
// bridge, mount or address is left.
//
// There is no kube-proxy (Services do not route, but for the API server's own), no
// DNS, and nothing that enforces NetworkPolicies.
package realnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

// Name of the node.
const Name = "node"

const (
	// startPatience is how long each of the node's programs may take to be
	// ready.
	startPatience = 2 * time.Minute
	stopGrace     = 10 * time.Second
)

// Config configures a node.
type Config struct {
	Dir, LogDir string                  // the node's folder, and that of its programs' logs
	Assets      controlplane.NodeAssets // the programs that no package has
	// ControlPlane starts the control plane. It runs in the node's namespaces:
	// its loopback addresses are not those of the machine.
	ControlPlane *controlplane.ControlPlane
}

// Node is a running node.
type Node struct {
	cfg         Config
	dir, logDir string
	apiServer   *forwarder
	programs    []*supervise.Part // in their start order
}

// Prepare makes the namespaces that Enter has started this process in usable.
// Nothing that uses the network may come before.
func Prepare(ctx context.Context, serviceIP string) error {
	if !Inside() {
		return errors.New("a node needs namespaces of its own: call Enter")
	}
	return errors.Join(isolate(), network(ctx, serviceIP))
}

// Start starts a node after Prepare, and returns when it is Ready. Images come
// by Import, the pause image among them before the first Pod.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{cfg: cfg, dir: cfg.Dir, logDir: cfg.LogDir}
	if err := os.MkdirAll(filepath.Join(n.dir, "podlogs"), 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := n.start(ctx); err != nil {
		return nil, fmt.Errorf("start a node: %w", errors.Join(err, n.Stop()))
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	var err error
	n.apiServer, err = forward(net.JoinHostPort(controlplane.ServiceIP(), "443"), n.cfg.ControlPlane.Addr())
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{n.startContainerd, n.startControllers, n.startKubelet} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// run starts a program and waits until ready, unless that is nil, returns nil.
func (n *Node) run(ctx context.Context, c process.Command, ready func(context.Context) error) error {
	c.Dir, c.LogFile = n.dir, filepath.Join(n.logDir, c.Name+".log")
	p := &supervise.Part{Command: c}
	if err := p.Start(); err != nil {
		return err
	}
	n.programs = append(n.programs, p)
	if ready == nil {
		return nil
	}
	if err := supervise.Until(ctx, 50*time.Millisecond, p.Exited, ready); err != nil {
		return fmt.Errorf("wait for %s: %w", c.Name, err)
	}
	return nil
}

// Stop stops the node's programs. Containers run on until the process ends.
func (n *Node) Stop() error {
	var errs []error
	for _, p := range slices.Backward(n.programs) {
		errs = append(errs, p.Current().Stop(stopGrace))
	}
	if n.apiServer != nil {
		errs = append(errs, n.apiServer.close())
	}
	return errors.Join(errs...)
}
