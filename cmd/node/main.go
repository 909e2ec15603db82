// Command node runs Pods as processes on loopback addresses, for laptops and
// tests.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/node"
)

func main() { os.Exit(program.Main("node", run)) }

// run runs Pods until ctx ends. Logs and help go to out.
func run(ctx context.Context, args []string, out io.Writer) error {
	opts, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	log, err := opts.Logger(out)
	if err != nil {
		return err
	}
	launcher, err := node.FindLauncher(opts.squid, opts.connectProxy)
	if err != nil {
		return err
	}
	config, err := kube.Config(opts.Kubeconfig, "node")
	if err != nil {
		return err
	}
	config.QPS = -1 // a local API server, ours alone
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	n, err := node.New(node.Config{
		Name: opts.nodeName, Subnet: opts.subnet, Root: opts.root,
		Launcher: launcher, Client: client, Clock: clock.RealClock{}, Log: log,
	})
	if err != nil {
		return err
	}
	registry := ops.NewRegistry()
	registry.MustRegister(n.Collector())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.Run(ctx) })
	g.Go(func() error {
		return (&ops.Server{Addr: opts.OpsAddr, Registry: registry, Ready: n.Ready, Log: log}).Run(ctx)
	})
	return g.Wait()
}
