package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
)

const intro = `discovery tells crawlers which proxies there are and leases them, over HTTP.

The bearer token that requests must have is read from the environment variable
DISCOVERY_TOKEN. Leases and cooldowns are kept in memory and lost with the
process, so run one replica.`

// tokenVariable holds the bearer token. It is no flag: command lines can be
// read by everybody on the machine.
const tokenVariable = "DISCOVERY_TOKEN"

// storeMemory is the one lease store that there is.
const storeMemory = "memory"

type options struct {
	flags.Common
	addr            string
	leaseStore      string
	leaseCooldown   time.Duration
	maxLeaseTTL     time.Duration
	verdictMaxAge   time.Duration
	namespace       string
	systemNamespace string
	insecure        bool
	token           string
}

// parseOptions reads the command line and the environment, and returns
// flags.ErrHelp after printing help to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	fs := flags.NewSet("discovery", intro, out)
	fs.StringVar(&o.addr, "addr", ":8090", "`address` that serves the API")
	fs.StringVar(&o.leaseStore, "lease-store", storeMemory, "`where` leases are kept: memory")
	fs.DurationVar(&o.leaseCooldown, "lease-cooldown", 10*time.Minute, "for how long a proxy rests after a report of rate_limited or banned; 0 switches that off")
	fs.DurationVar(&o.maxLeaseTTL, "max-lease-ttl", time.Hour, "longest TTL that a lease may ask for")
	fs.DurationVar(&o.verdictMaxAge, "verdict-max-age", 5*time.Minute, "for how long verdicts count after the prober's last sign of life")
	fs.StringVar(&o.namespace, "namespace", "", "`namespace` whose Proxies are served; empty for all")
	fs.StringVar(&o.systemNamespace, "system-namespace", kube.OwnNamespace(), "`namespace` where probers keep their Lease objects")
	fs.BoolVar(&o.insecure, "insecure", false, "serve everybody when "+tokenVariable+" is empty, instead of refusing to start")
	o.Register(fs, ":8083")
	if err := flags.Parse(fs, args); err != nil {
		return options{}, err
	}
	o.token = strings.TrimSpace(os.Getenv(tokenVariable))
	return o, o.validate()
}

// validate returns everything that is wrong at once.
func (o options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(flags.Listenable(o.addr), "--addr %q: want host:port, such as :8090", o.addr)
	check(o.leaseStore == storeMemory, "--lease-store %q: this version knows only %s", redactStore(o.leaseStore), storeMemory)
	check(o.leaseCooldown >= 0, "--lease-cooldown %s: want 0 or more", o.leaseCooldown)
	check(o.maxLeaseTTL >= time.Second, "--max-lease-ttl %s: want at least 1s", o.maxLeaseTTL)
	check(o.verdictMaxAge >= time.Second, "--verdict-max-age %s: want at least 1s, and more than the prober takes between two renewals of its Lease", o.verdictMaxAge)
	check(o.systemNamespace != "", "--system-namespace is empty: name the namespace where probers keep their Lease objects")
	check(o.token != "" || o.insecure, "%s is empty: set it to the bearer token that crawlers send, or let everybody in with --insecure", tokenVariable)
	return errors.Join(append(errs, o.Common.Validate())...)
}

// redactStore keeps what follows the scheme, where a password may be, from
// being printed.
func redactStore(store string) string {
	if scheme, _, found := strings.Cut(store, ":"); found {
		return scheme + ":..."
	}
	return store
}
