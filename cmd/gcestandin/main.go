// Command gcestandin runs a stand-in for Compute Engine.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
)

func main() { os.Exit(program.Main("gcestandin", run)) }

// run serves until ctx ends. Logs and help go to out.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	log, err := o.Logger(out)
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
	g.Go(func() error { return httpapi.Run(ctx, httpapi.NewServer(s.Handler(), log), ln) })
	return g.Wait()
}
