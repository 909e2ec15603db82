// Command connectproxy is the forward proxy that stands in for squid where none
// is installed.
package main

import (
	"context"
	"io"
	"os"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/connectproxy"
)

func main() { os.Exit(program.Main("connectproxy", run)) }

func run(ctx context.Context, args []string, out io.Writer) error {
	opts, err := parse(args, out)
	if err != nil {
		return err
	}
	log, err := opts.Logger(out)
	if err != nil {
		return err
	}
	cfg, err := opts.config()
	if err != nil {
		return err
	}
	return connectproxy.New(cfg, log).Run(ctx)
}
