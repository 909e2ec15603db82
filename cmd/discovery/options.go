package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/api"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
)

const intro = `discovery lists the proxies and leases them to crawlers, over HTTP.

Requests need the bearer token of the environment variable DISCOVERY_TOKEN, which
has all scopes. For several tokens, each with a name,
scopes (read, lease, admin) and a rate, name a file with --tokens-file instead,
such as a key of a mounted Secret. It is reloaded when it changes:

  tokens:
  - name: crawler-eu
    token: "at least 16 bytes"      # openssl rand -hex 32
    previousToken: "..."            # optional: accepted, too, for a rotation
    scopes: [lease]                 # lease includes read, admin includes both
    requestsPerSecond: 200          # optional, instead of --token-rate

--lease-store selects where leases and cooldowns are kept:

  memory      in this process; a restart loses them
  file:PATH   in a file; its folder must exist. A lease is granted once it is on
              disk. An outage extends all leases and cooldowns by its length.
              Only one process may open the file.
  redis://[[USER]:PASSWORD@]HOST:PORT[/DATABASE][?prefix=PREFIX]
              in Redis or Valkey, shared by all replicas with one PREFIX
              (default egress-proxies); rediss:// for TLS, unix:///PATH for a
              socket. As durable as Redis is configured: appendonly yes, appendfsync
              always or everysec, maxmemory-policy noeviction. With a password,
              set it in the environment: PX_LEASE_STORE, from a Secret.

With memory and file, run one replica, and never two at once (strategy
Recreate).`

// tokenVariable has the bearer token. It is no flag, since all users of a machine can
// read command lines.
const tokenVariable = "DISCOVERY_TOKEN"

// defaultStore needs no writable folder.
const defaultStore = "memory"

type options struct {
	flags.Common
	addr            string
	leaseStore      string
	leaseCooldown   time.Duration
	maxLeaseTTL     time.Duration
	verdictMaxAge   time.Duration
	drain           time.Duration
	namespace       string
	systemNamespace string
	insecure        bool
	token           string
	tokensFile      string
	tokenRate       float64
}

// parseOptions reads the command line and the environment, and returns
// flags.ErrHelp after printing help to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	fs := flags.NewSet("discovery", intro, out)
	fs.StringVar(&o.addr, "addr", ":8090", "`address` that serves the API")
	fs.StringVar(&o.leaseStore, "lease-store", defaultStore, "`where` leases are kept: "+storeForms())
	fs.DurationVar(&o.leaseCooldown, "lease-cooldown", 10*time.Minute, "cooldown of a proxy for a target after a report of rate_limited, banned or captcha, and a twentieth of it for the target after target_unreachable, or for all targets after proxy_timeout or connect_error; 0 disables cooldowns")
	fs.DurationVar(&o.maxLeaseTTL, "max-lease-ttl", time.Hour, "longest TTL of a lease")
	fs.DurationVar(&o.verdictMaxAge, "verdict-max-age", 5*time.Minute, "age of the prober's last Lease renewal after which its verdicts are stale")
	fs.DurationVar(&o.drain, "drain", 2*time.Second, "time after SIGTERM in which requests are answered while clients change connections, before the shutdown")
	fs.StringVar(&o.namespace, "namespace", "", "`namespace` whose Proxies are served; empty for all")
	fs.StringVar(&o.systemNamespace, "system-namespace", kube.OwnNamespace(), "`namespace` of the probers' Lease objects")
	fs.StringVar(&o.tokensFile, "tokens-file", "", "`file` with bearer tokens, instead of "+tokenVariable)
	fs.Float64Var(&o.tokenRate, "token-rate", 1000, "rate limit of each token, a `number` of requests a second with a burst of twice as many; 0 for none")
	fs.BoolVar(&o.insecure, "insecure", false, "serve without authentication when there is no token, instead of refusing to start")
	o.Register(fs, ":8083")
	if err := flags.Parse(fs, args); err != nil {
		return options{}, err
	}
	o.token = strings.TrimSpace(os.Getenv(tokenVariable))
	return o, o.validate()
}

// validate returns all errors at once.
func (o options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(flags.Listenable(o.addr), "--addr %q: want host:port, such as :8090", o.addr)
	if _, err := storeKindOf(o.leaseStore); err != nil {
		check(false, "--lease-store %q: %w", redactStore(o.leaseStore), err)
	}
	check(o.leaseCooldown >= 0, "--lease-cooldown %s: want 0 or more", o.leaseCooldown)
	check(o.maxLeaseTTL >= time.Second, "--max-lease-ttl %s: want at least 1s", o.maxLeaseTTL)
	check(o.verdictMaxAge >= time.Second, "--verdict-max-age %s: want at least 1s, and more than the prober's renewal interval", o.verdictMaxAge)
	check(o.drain >= 0 && o.drain <= 10*time.Second, "--drain %s: want 0 to 10s; a Pod's grace period is 30 s, and requests in flight may take 20", o.drain)
	check(o.systemNamespace != "", "--system-namespace is empty: name the namespace of the probers' Lease objects")
	check(o.tokenRate >= 0 && o.tokenRate <= 1e6, "--token-rate %g: want 0, for no limit, to 1000000", o.tokenRate)
	o.checkTokens(check)
	return errors.Join(append(errs, o.Common.Validate())...)
}

// checkTokens wants exactly one source of tokens, or --insecure.
func (o options) checkTokens(check func(ok bool, format string, args ...any)) {
	if o.tokensFile != "" {
		check(o.token == "", "%s and --tokens-file are both set: put the token into the file, and unset the variable", tokenVariable)
		return
	}
	if o.token == "" {
		check(o.insecure, "%s is empty: set it to the bearer token that crawlers send, name a file of tokens with --tokens-file, or disable authentication with --insecure", tokenVariable)
		return
	}
	err := access.CheckValue(o.token)
	check(err == nil, "%s: %v", tokenVariable, err)
}

// tokens returns nil without authentication.
func (o options) tokens(clk clock.WithTicker, log *slog.Logger) (*access.Tokens, error) {
	switch {
	case o.tokensFile != "":
		t, err := access.FromFile(o.tokensFile, o.tokenRate, clk, log)
		if err != nil {
			return nil, fmt.Errorf("--tokens-file: %w", err)
		}
		return t, nil
	case o.token != "":
		return access.Single(o.token, o.tokenRate)
	}
	return nil, nil
}

// serverConfig adds the options to a configuration.
func (o options) serverConfig(cfg api.Config, tokens *access.Tokens) api.Config {
	cfg.Insecure, cfg.MaxLeaseTTL = o.insecure, o.maxLeaseTTL
	if tokens != nil { // a nil pointer in an interface is not nil
		cfg.Tokens = tokens
	}
	return cfg
}

// redactStore removes everything after the scheme, which may contain a password.
func redactStore(store string) string {
	if scheme, _, found := strings.Cut(store, ":"); found {
		return scheme + ":..."
	}
	return store
}
