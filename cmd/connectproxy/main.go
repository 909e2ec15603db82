// Command connectproxy is the forward proxy that stands in for squid where none
// is installed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/logging"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/connectproxy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flags.ErrHelp) {
		fmt.Fprintln(os.Stderr, "connectproxy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	opts, err := parse(args, out)
	if err != nil {
		return err
	}
	log, err := logging.New(out, opts.logLevel, opts.logFormat)
	if err != nil {
		return err
	}
	cfg, err := opts.config()
	if err != nil {
		return err
	}
	return connectproxy.New(cfg, log).Run(ctx)
}
