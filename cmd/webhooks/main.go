// Command webhooks serves Metacontroller's hooks for Proxies.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/events"
)

// adapterTimeout bounds a request to the cloud adapter. The hooks time out earlier.
const adapterTimeout = 5 * time.Second

// writeTimeout bounds an answer. Metacontroller times out after 10 s.
const writeTimeout = 30 * time.Second

func main() { os.Exit(program.Main("webhooks", run)) }

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
	p, err := build(o, log)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// process holds the parts that run.
type process struct {
	listen string
	tls    *tls.Config
	tokens *config.BearerTokens
	hooks  *webhooks.Hooks
	cloud  *adapter.Client  // nil without --cloud-socket
	events *events.Recorder // nil when Events are off
	// closeEvents closes the connections of events.
	closeEvents func()
	ops         *ops.Server
	log         *slog.Logger
}

func build(o options, log *slog.Logger) (*process, error) {
	p := &process{listen: o.listen, log: log}
	providers, err := config.LoadProviders(o.providersConfig)
	if err != nil {
		return nil, fmt.Errorf("--providers-config: %w", err)
	}
	if clouds := providers.CloudProviders(); len(clouds) > 0 && o.cloudSocket == "" {
		return nil, fmt.Errorf("--cloud-socket is missing: the cloud adapter creates the instances of provider %s; name the socket that it listens on (--socket of cloud)", strings.Join(clouds, ", "))
	}
	if err := p.secure(o); err != nil {
		return nil, err
	}
	reg := ops.NewRegistry()
	opts := webhooks.Options{
		Providers: providers, CloudInitSecrets: o.cloudInitSecrets, MaxReplacing: o.limit,
		Timing: o.timing, Clock: clock.RealClock{}, Log: log, Registry: reg,
	}
	if o.cloudSocket != "" {
		p.cloud = adapter.NewClient(o.cloudSocket, adapterTimeout)
		opts.Adapter = p.cloud
	}
	if err := p.recordEvents(o, reg); err != nil {
		return nil, err
	}
	if p.events != nil {
		opts.Events = p.events
	}
	p.hooks = webhooks.New(opts)
	p.ops = &ops.Server{Addr: o.OpsAddr, Registry: reg, Ready: p.hooks.Ready, Log: log}
	log.Info("provider config loaded", "file", o.providersConfig, "providers", len(providers))
	return p, nil
}

// secure loads the certificate and the tokens.
func (p *process) secure(o options) error {
	var err error
	if o.tlsCert != "" {
		if p.tls, err = config.TLSConfig(o.tlsCert, o.tlsKey, p.log); err != nil {
			return fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
	}
	if o.tokenFile != "" {
		if p.tokens, err = config.NewBearerTokens(o.tokenFile, p.log); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
	}
	if p.tls == nil || p.tokens == nil {
		p.log.Warn("INSECURE: every client that reaches the hooks can read or forge their answers", "tls", p.tls != nil, "token", p.tokens != nil)
	}
	return nil
}

// recordEvents prepares the Recorder of Events. Without --kubeconfig a missing API
// server is no error: the hooks work, and log once that Events are off.
func (p *process) recordEvents(o options, reg prometheus.Registerer) error {
	if !o.events {
		return nil
	}
	cfg, err := kube.Config(o.Kubeconfig, "egress-proxies-webhooks")
	switch {
	case err != nil && o.Kubeconfig != "":
		return err
	case errors.Is(err, rest.ErrNotInCluster):
		p.log.Info("no Events are sent: no --kubeconfig, and this is no Pod")
		return nil
	case err != nil:
		p.log.Warn("no Events are sent: mount the Pod's token, or set --events=false", "err", err)
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the host name for Events: %w", err)
	}
	api, closeIdle, err := events.Client(cfg)
	if err != nil {
		return err
	}
	p.events, p.closeEvents = events.New(events.Options{API: api, Instance: host, Clock: clock.RealClock{}, Log: p.log, Registry: reg}), closeIdle
	return nil
}

// run serves until ctx ends or a part fails. The failure of one part stops the
// others.
func (p *process) run(ctx context.Context) error {
	ln, err := net.Listen("tcp", p.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", p.listen, err)
	}
	srv := httpapi.NewServer(p.hooks.Handler(p.tokens), p.log)
	srv.TLSConfig, srv.WriteTimeout = p.tls, writeTimeout
	p.log.Info("hooks listening", "addr", ln.Addr().String(), "tls", p.tls != nil)
	if p.cloud != nil {
		defer p.cloud.Close()
	}
	// Events outlive the last hook that is in flight.
	sending, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSending()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.ops.Run(ctx) })
	g.Go(func() error {
		defer stopSending()
		return httpapi.Run(ctx, srv, ln)
	})
	if p.events != nil {
		defer p.closeEvents()
		g.Go(func() error { return p.events.Run(sending) })
	}
	return g.Wait()
}
