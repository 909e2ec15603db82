// Command discovery serves the fleet of proxies to crawlers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/api"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
)

func main() { os.Exit(program.Main("discovery", run)) }

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
	cfg, err := kube.Config(o.Kubeconfig, "discovery")
	if err != nil {
		return err
	}
	// The default of 5 requests a second would throttle reads of Secrets.
	cfg.QPS, cfg.Burst = 50, 100
	store, err := openStore(storeConfig{where: o.leaseStore, cooldown: o.leaseCooldown, clock: clock.RealClock{}, log: log})
	if err != nil {
		return fmt.Errorf("--lease-store: %w", err)
	}
	p, err := build(o, cfg, store, log)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	return errors.Join(p.run(ctx), store.Close())
}

// process has all running parts.
type process struct {
	addr   string
	drain  time.Duration
	api    *api.Server
	view   *fleet.View
	store  leaseStore
	tokens *access.Tokens // nil: no authentication
	ops    *ops.Server
	log    *slog.Logger
}

func build(o options, cfg *rest.Config, store leaseStore, log *slog.Logger) (*process, error) {
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for Proxies: %w", err)
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for Leases and Secrets: %w", err)
	}
	clk, reg := clock.RealClock{}, ops.NewRegistry()
	view := fleet.NewView(fleet.Config{
		Dynamic: objects, Kubernetes: clients,
		Namespace: o.namespace, SystemNamespace: o.systemNamespace,
		VerdictMaxAge: o.verdictMaxAge, Clock: clk, Log: log,
	})
	tokens, err := o.tokens(clk, log)
	if err != nil {
		return nil, err
	}
	server, err := api.New(o.serverConfig(api.Config{
		Fleet: view, Store: store, Credentials: credentials.NewReader(clients),
		Clock: clk, Metrics: api.NewMetrics(reg), Log: log,
	}, tokens))
	if err != nil {
		return nil, err
	}
	if err := reg.Register(api.NewCollector(view, store, log)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if c, ok := store.(interface{ Collector() prometheus.Collector }); ok {
		reg.MustRegister(c.Collector())
	}
	if tokens != nil {
		reg.MustRegister(tokens.Collector())
	} else {
		log.Warn("INSECURE: "+tokenVariable+" is empty and --insecure is set, so every client that reaches the API can lease proxies and read their passwords", "addr", o.addr)
	}
	return &process{
		addr: o.addr, drain: o.drain, api: server, view: view, store: store, tokens: tokens, log: log,
		ops: &ops.Server{Addr: o.OpsAddr, Registry: reg, Ready: ready(view, store), Log: log},
	}, nil
}

// ready returns nil when leases can be granted: the fleet is synced, and the store is
// ready.
func ready(view *fleet.View, store leaseStore) func() error {
	return func() error { return errors.Join(view.Ready(), store.Ready()) }
}

// run serves until ctx ends or a part fails, which ends the others.
func (p *process) run(ctx context.Context) error {
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("--addr %s: %w", p.addr, err)
	}
	p.log.Info("API listening", "addr", ln.Addr().String())
	// Requests that drain after ctx has ended need the other parts.
	rest, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.view.Run(rest) })
	g.Go(func() error { return p.store.Run(rest) })
	if p.tokens != nil {
		g.Go(func() error { return p.tokens.Run(rest) })
	}
	g.Go(func() error { return p.ops.Run(rest) })
	srv := httpapi.NewServer(p.api.Handler(), p.log)
	srv.RegisterOnShutdown(p.api.Drain)
	g.Go(func() error {
		defer stop()
		return httpapi.RunDraining(ctx, srv, ln, p.drain)
	})
	return g.Wait()
}
