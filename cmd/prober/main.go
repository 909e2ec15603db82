// Command prober probes every proxy through the proxy, and writes its verdict.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober"
)

func main() { os.Exit(program.Main("prober", run)) }

// run probes until ctx ends. Logs and help go to out.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	log, err := o.Logger(out)
	if err != nil {
		return err
	}
	cfg, err := kube.Config(o.Kubeconfig, "prober")
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("get the hostname for the Lease: %w", err)
	}
	reg := ops.NewRegistry()
	p, err := prober.New(prober.Config{
		API: cfg, Namespace: o.namespace, SystemNamespace: o.systemNamespace,
		Shard: o.shard, Workers: o.workers, Roots: o.roots, Outage: o.outage, Holder: host + "_" + uuid.NewString(),
		Registry: reg, Log: log,
	})
	if err != nil {
		return err
	}
	log.Info("probing", "shard", o.shard.String(), "workers", o.workers)
	server := &ops.Server{Addr: o.OpsAddr, Registry: reg, Ready: p.Ready, Debug: p.Explainer(), Log: log}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.Run(ctx) })
	g.Go(func() error { return server.Run(ctx) })
	return g.Wait()
}
