// Package e2e runs our manifests and our images on a real API server and a real
// node, and walks the demo's steps there. The stand-in runs in place of
// Metacontroller, over the TLS and with the token that a cluster has.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/realnode"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/target"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/walk"
)

// Namespaces and provider of the overlay.
const (
	systemNamespace = "egress-proxies"
	fleetNamespace  = "crawl"
	provider        = "pods"
)

// controlPlaneAddr is in the loopback network of the node's own namespace.
const controlPlaneAddr = "127.0.0.2"

// Config configures a run.
type Config struct {
	BinDir    string // has metacontroller-standin and connectproxy
	Images    string // the tar of images that the overlay names, and the pause image
	Manifests []byte // the overlay, rendered
	// Assets and NodeAssets are Kubernetes' programs.
	Assets     controlplane.Assets
	NodeAssets controlplane.NodeAssets
	Dir        string // an empty folder for all files of the run. Its logs stay.
	// Log and Progress receive the logs, and a line per step.
	Log      *slog.Logger
	Progress io.Writer
}

// run is one run, from the control plane to the walk.
type run struct {
	cfg      Config
	cp       *controlplane.ControlPlane
	node     *realnode.Node
	client   *kubernetes.Clientset
	target   *target.Target
	external string
	stops    []func() error
}

// Run starts everything, walks and stops everything. This process must be one
// that realnode.Enter has started.
func Run(ctx context.Context, cfg Config) error {
	r := &run{cfg: cfg}
	err := r.all(ctx)
	for i := len(r.stops) - 1; i >= 0; i-- {
		err = errors.Join(err, r.stops[i]())
	}
	return err
}

func (r *run) all(ctx context.Context) error {
	if err := realnode.Prepare(ctx, controlplane.ServiceIP()); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"API server", r.startControlPlane},
		{"node: containerd, kubelet, controller manager", r.startNode},
		{"images", func(ctx context.Context) error { return r.node.Import(ctx, r.cfg.Images) }},
		{"probe target and a proxy that is not ours", r.startSurroundings},
		{"manifests applied, our Pods Ready", r.deploy},
		{"stand-in for Metacontroller", r.startStandIn},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Fprintf(r.cfg.Progress, "%s: %s\n", step.what, time.Since(began).Round(10*time.Millisecond))
	}
	facts, err := r.facts(ctx)
	if err != nil {
		return err
	}
	return walk.Run(ctx, facts, r.cfg.Progress)
}

func (r *run) startControlPlane(ctx context.Context) error {
	var err error
	r.cp, err = controlplane.Start(ctx, controlplane.Config{
		Dir: filepath.Join(r.cfg.Dir, "controlplane"), Addr: controlPlaneAddr, Assets: r.cfg.Assets, Log: r.cfg.Log,
	})
	if err != nil {
		return err
	}
	r.stops = append(r.stops, r.cp.Stop)
	r.client, err = kubernetes.NewForConfig(r.cp.RESTConfig())
	return err
}

func (r *run) startNode(ctx context.Context) error {
	dir := filepath.Join(r.cfg.Dir, "node")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	var err error
	r.node, err = realnode.Start(ctx, realnode.Config{Dir: dir, LogDir: r.logDir(), Assets: r.cfg.NodeAssets, ControlPlane: r.cp})
	if err != nil {
		return err
	}
	r.stops = append(r.stops, r.node.Stop)
	return nil
}

// startSurroundings starts what is not the system's, at the node's address.
func (r *run) startSurroundings(context.Context) error {
	var err error
	// 443 is the one port that the overlay's squids go to.
	r.target, err = target.NewAt(realnode.GatewayIP, 443, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.target.Run(ctx) }()
	r.stops = append(r.stops, func() error { cancel(); return <-done })

	r.external = realnode.GatewayIP + ":3128"
	return r.start(process.Command{Name: "connectproxy", Args: []string{
		"--listen", r.external, "--allow-client", "10.244.0.0/24",
		"--allow-destination", realnode.GatewayIP + "/32", "--allow-port", "443",
	}})
}

// start starts one of our programs beside the node's Pods.
func (r *run) start(c process.Command) error {
	c.Path, c.LogFile = filepath.Join(r.cfg.BinDir, c.Name), filepath.Join(r.logDir(), c.Name+".log")
	p, err := process.Start(c)
	if err != nil {
		return err
	}
	r.stops = append(r.stops, func() error { return p.Stop(10 * time.Second) })
	return nil
}

func (r *run) logDir() string { return filepath.Join(r.cfg.Dir, "logs") }
