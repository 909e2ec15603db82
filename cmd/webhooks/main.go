// Command webhooks answers Metacontroller's hooks for Proxies.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/events"
)

// adapterTimeout bounds a call of the cloud adapter by itself; the hooks give up
// earlier.
const adapterTimeout = 5 * time.Second

// writeTimeout bounds an answer. Metacontroller gives up after 10 s by itself.
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

// process is everything that runs.
type process struct {
	listen string
	tls    *tls.Config
	tokens *webhooks.BearerTokens
	hooks  *webhooks.Hooks
	cloud  *adapter.Client  // nil without --cloud-socket
	events *events.Recorder // nil where none are sent
	// closeEvents closes the connections of events.
	closeEvents func()
	ops         *ops.Server
	log         *slog.Logger
}

func build(o options, log *slog.Logger) (*process, error) {
	p := &process{listen: o.listen, log: log}
	providers, err := webhooks.LoadProviders(o.providersConfig)
	if err != nil {
		return nil, fmt.Errorf("--providers-config: %w", err)
	}
	if outside := providers.Outside(); len(outside) > 0 && o.cloudSocket == "" {
		return nil, fmt.Errorf("--cloud-socket is missing: the cloud adapter makes the instances of provider %s; name the socket that it listens on (--socket of cloud)", strings.Join(outside, ", "))
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
		if p.tls, err = webhooks.TLSConfig(o.tlsCert, o.tlsKey, p.log); err != nil {
			return fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
	}
	if o.tokenFile != "" {
		if p.tokens, err = webhooks.NewBearerTokens(o.tokenFile, p.log); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
	}
	if p.tls == nil || p.tokens == nil {
		p.log.Warn("INSECURE: everybody who reaches the hooks can read or forge their answers", "tls", p.tls != nil, "token", p.tokens != nil)
	}
	return nil
}

// run serves until ctx ends or a part fails, which ends the others.
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
