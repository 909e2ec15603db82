// Command prober judges the health of proxies by probing through them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober"
)

func main() { os.Exit(exitCode()) }

// exitCode runs the process until it fails or is told to end.
func exitCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	if err == nil || errors.Is(err, flags.ErrHelp) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "prober: %v\n", err)
	return 1
}

// run probes until ctx ends. Logs and help go to out.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	log, err := o.logger(out)
	if err != nil {
		return err
	}
	cfg, err := kube.Config(o.Kubeconfig, "prober")
	if err != nil {
		return err
	}
	holder, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find this machine's name, which goes into the Lease: %w", err)
	}
	reg := ops.NewRegistry()
	p, err := prober.New(prober.Config{
		API: cfg, Namespace: o.namespace, SystemNamespace: o.systemNamespace,
		Shard: o.shard, Workers: o.workers, Roots: o.roots, Holder: holder,
		Registry: reg, Log: log,
	})
	if err != nil {
		return err
	}
	log.Info("probing", "shard", o.shard.String(), "workers", o.workers)
	server := &ops.Server{Addr: o.OpsAddr, Registry: reg, Ready: p.Ready, Log: log}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.Run(ctx) })
	g.Go(func() error { return server.Run(ctx) })
	return g.Wait()
}
