// Command metacontroller-standin is the stand-in for Metacontroller on laptops and in
// tests. It runs one CompositeController manifest.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/standin"
)

// name of the program in errors, help and its user agent.
const name = "metacontroller-standin"

func main() { os.Exit(program.Main(name, run)) }

func run(ctx context.Context, args []string, out io.Writer) error {
	opts, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	log, err := opts.Logger(out)
	if err != nil {
		return err
	}
	controller, err := metacontroller.LoadController(opts.controllerFile)
	if err != nil {
		return fmt.Errorf("--controller-file: %w", err)
	}
	config, err := kube.Config(opts.Kubeconfig, name)
	if err != nil {
		return err
	}
	registry := ops.NewRegistry()
	s, err := standin.New(standin.Config{
		Controller:   controller,
		REST:         config,
		Workers:      opts.workers,
		ResyncPeriod: opts.resyncPeriod,
		HookCA:       opts.hookCA,
		HookToken:    opts.hookToken,
		Log:          log,
		Registerer:   registry,
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Run(ctx) })
	g.Go(func() error {
		return (&ops.Server{Addr: opts.OpsAddr, Registry: registry, Ready: s.Ready, Log: log}).Run(ctx)
	})
	return g.Wait()
}
