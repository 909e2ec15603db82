// Command cloud is the cloud adapter, a sidecar of the hooks.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
)

func main() { os.Exit(program.Main("cloud", run)) }

// registry has one line for each cloud.
func registry(o *options) provider.Registry {
	return provider.Registry{
		gcp.Type: gcp.Constructor(gcp.Options{Endpoint: o.gcpEndpoint}),
	}
}

// run runs the adapter until ctx ends. Logs and help go to out.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	log, err := o.Logger(out)
	if err != nil {
		return err
	}
	providers, err := registry(o).Load(ctx, o.providersConfig, o.installation)
	if err != nil {
		return err
	}
	defer func() {
		for _, named := range providers {
			err = errors.Join(err, named.Close())
		}
	}()
	cfg, err := kubeConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	return serve(ctx, o, providers, cfg, log)
}

// kubeConfig returns nil without an API server: path is empty and this is not a Pod.
func kubeConfig(path string) (*rest.Config, error) {
	cfg, err := kube.Config(path, "cloud")
	if path == "" && errors.Is(err, rest.ErrNotInCluster) {
		return nil, nil
	}
	return cfg, err
}

func serve(ctx context.Context, o *options, providers []provider.Named, cfg *rest.Config, log *slog.Logger) error {
	reg := ops.NewRegistry()
	a, err := cloud.New(cloud.Config{
		Socket: o.socket, Installation: o.installation, Providers: providers,
		ListInterval: o.listInterval, QuotaRetry: o.quotaRetry,
		MutationsPerSecond: o.mutations, MutationsBurst: o.mutationsBurst,
		Kube: cfg, SystemNamespace: o.systemNamespace,
		GCInterval: o.gcInterval, GCMinAge: o.gcMinAge, GCDryRun: o.gcDryRun, GCDisabled: o.gcDisabled(),
		Namespace: o.namespace, Registry: reg, Log: log,
	})
	if err != nil {
		return err
	}
	health := &ops.Server{Addr: o.OpsAddr, Registry: reg, Ready: a.Ready, Log: log}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.Run(ctx) })
	g.Go(func() error { return health.Run(ctx) })
	return g.Wait()
}
