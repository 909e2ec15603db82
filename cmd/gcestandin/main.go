// Command gcestandin runs a stand-in for Compute Engine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpserve"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/logging"
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
	fmt.Fprintf(os.Stderr, "gcestandin: %v\n", err)
	return 1
}

// run serves until ctx ends. Logs and help go to out.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	log, err := logging.New(out, o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	opts := o.server()
	opts.Log = log
	if o.command != "" {
		runner, err := gcestandin.NewCommandRunner(o.command, o.prefix, o.root, log)
		if err != nil {
			return fmt.Errorf("--vm-command: %w", err)
		}
		defer runner.Wait()
		opts.Runner = runner
	}
	ln, err := net.Listen("tcp", o.addr)
	if err != nil {
		return fmt.Errorf("--addr %s: %w", o.addr, err)
	}
	log.Info("listening", "addr", ln.Addr().String(), "project", o.project)
	s := gcestandin.New(opts)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.Run(ctx); return nil })
	g.Go(func() error { return httpserve.Run(ctx, httpserve.NewServer(s.Handler(), log), ln) })
	return g.Wait()
}
