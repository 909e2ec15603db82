// Command engine stands in for Metacontroller on laptops and in tests: it drives
// the hooks of one CompositeController manifest.
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
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/logging"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/engine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flags.ErrHelp) {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	opts, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	log, err := logging.New(out, opts.LogLevel, opts.LogFormat)
	if err != nil {
		return err
	}
	controller, err := metacontroller.LoadController(opts.controllerFile)
	if err != nil {
		return fmt.Errorf("--controller-file: %w", err)
	}
	config, err := kube.Config(opts.Kubeconfig, "engine")
	if err != nil {
		return err
	}
	registry := ops.NewRegistry()
	e, err := engine.New(engine.Config{
		Controller:   controller,
		REST:         config,
		Workers:      opts.workers,
		ResyncPeriod: opts.resyncPeriod,
		Log:          log,
		Registerer:   registry,
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.Run(ctx) })
	g.Go(func() error {
		return (&ops.Server{Addr: opts.OpsAddr, Registry: registry, Ready: e.Ready, Log: log}).Run(ctx)
	})
	return g.Wait()
}
