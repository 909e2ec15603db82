// Command echo serves the echo endpoint, a probe target that returns what arrived.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
)

func main() { os.Exit(program.Main("echo", run)) }

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
	g, ctx := errgroup.WithContext(ctx)
	if o.listen != "" {
		g.Go(func() error { return serve(ctx, "--listen", o.listen, nil, log) })
	}
	if o.tlsListen != "" {
		g.Go(func() error { return serve(ctx, "--tls-listen", o.tlsListen, o.tls, log) })
	}
	ready := func() error { return nil }
	server := &ops.Server{Addr: o.opsAddr, Registry: ops.NewRegistry(), Ready: ready, Log: log}
	g.Go(func() error { return server.Run(ctx) })
	return g.Wait()
}

func serve(ctx context.Context, flag, addr string, config *tls.Config, log *slog.Logger) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%s %s: %w", flag, addr, err)
	}
	// The endpoint is public: invalid requests are not logged.
	srv := httpapi.NewServer(answer(), slog.New(slog.DiscardHandler))
	srv.TLSConfig = config
	log.Info("echo endpoint listening", "addr", ln.Addr().String(), "tls", config != nil)
	return httpapi.Run(ctx, srv, ln)
}

// answer closes each connection after one response, since probes send one request.
func answer() http.Handler {
	inner := echo.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		inner.ServeHTTP(w, r)
	})
}
