package connectproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// Time limits, those of squid's defaults where it has the same: connect_timeout
// one minute, but a laptop's user waits less.
const (
	defaultDialTimeout = 10 * time.Second
	defaultIdleTimeout = 5 * time.Minute
)

// Proxy is one forward proxy.
type Proxy struct {
	cfg         *Config
	log         *slog.Logger
	resolver    Resolver
	dialTimeout time.Duration
	idleTimeout time.Duration
	tunnels     sync.WaitGroup
}

// Option changes a Proxy from its defaults.
type Option func(*Proxy)

// WithResolver makes the proxy look up names with r.
func WithResolver(r Resolver) Option { return func(p *Proxy) { p.resolver = r } }

// WithTimeouts sets how long a connect, name look-up included, may take, and
// how long a connection may be silent.
func WithTimeouts(dial, idle time.Duration) Option {
	return func(p *Proxy) { p.dialTimeout, p.idleTimeout = dial, idle }
}

// New returns a proxy that obeys cfg and logs each request to log.
func New(cfg *Config, log *slog.Logger, opts ...Option) *Proxy {
	p := &Proxy{
		cfg:         cfg,
		log:         log,
		resolver:    net.DefaultResolver,
		dialTimeout: defaultDialTimeout,
		idleTimeout: defaultIdleTimeout,
	}
	for _, o := range opts {
		o(p)
	}
	return p
}

// Run listens where the configuration says and serves until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	ln, err := net.Listen("tcp", p.cfg.ListenAddress())
	if err != nil {
		return fmt.Errorf("listen for proxy clients: %w", err)
	}
	p.log.Info("proxy listening", "addr", ln.Addr().String())
	return p.Serve(ctx, ln)
}

// Serve serves clients of ln until ctx ends; then it cuts the tunnels, waits
// for all of its goroutines and returns nil. It closes ln.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           p,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       p.idleTimeout,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	err := httpapi.Run(ctx, srv, ln)
	p.tunnels.Wait()
	return err
}

// ServeHTTP handles one request of a client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	var err error
	if r.Method == http.MethodConnect {
		err = p.connect(w, r)
	} else {
		err = p.forward(w, r)
	}
	var refused *refusal
	if errors.As(err, &refused) {
		refuse(w, refused)
	}
	log := p.log.With("client", r.RemoteAddr, "method", r.Method, "target", r.URL.Host, "duration", time.Since(start))
	if err != nil {
		log.Warn("request failed", "err", err)
		return
	}
	log.Info("request served")
}

// facts of a request; the destination comes later.
func facts(r *http.Request) (Facts, error) {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return Facts{}, &refusal{http.StatusInternalServerError, "proxy_internal_error", fmt.Errorf("client address %q: %w", r.RemoteAddr, err)}
	}
	return Facts{Client: client.Addr(), Method: r.Method}, nil
}

func badRequest(message string) error {
	return &refusal{http.StatusBadRequest, "http_request_error", errors.New(message)}
}
