package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const intro = `prober probes every proxy through the proxy, at the interval of its health check,
and writes the verdict into the status of its ProxyProbe.`

// maxWorkers keeps a typing error from opening a million connections.
const maxWorkers = 10_000

type options struct {
	flags.Common
	workers         int
	shardText       string
	shard           v1alpha1.Shard
	probeCA         string
	roots           *x509.CertPool
	namespace       string
	systemNamespace string
}

// parseOptions reads the command line and the environment, and returns
// flags.ErrHelp after printing help to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	fs := flags.NewSet("prober", intro, out)
	fs.IntVar(&o.workers, "workers", 8, "`number` of probes that may be in flight at once; a dead proxy holds one for its timeout")
	fs.StringVar(&o.shardText, "shard", "0/1", "part `i/n` of the fleet that this prober is responsible for")
	fs.StringVar(&o.probeCA, "probe-ca", "", "PEM `file` with the only authorities that probe targets are verified with; empty trusts the system's")
	fs.StringVar(&o.namespace, "namespace", "", "`namespace` whose ProxyProbes are watched; empty for all")
	fs.StringVar(&o.systemNamespace, "system-namespace", kube.OwnNamespace(), "`namespace` where the shard's Lease object is")
	o.Register(fs, ":8082")
	if err := flags.Parse(fs, args); err != nil {
		return options{}, err
	}
	return o, o.validate()
}

// validate returns everything that is wrong at once, and fills in what is made
// of the flags.
func (o *options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.workers >= 1 && o.workers <= maxWorkers, "--workers %d: want 1 to %d", o.workers, maxWorkers)
	check(o.systemNamespace != "", "--system-namespace is empty: name the namespace for the shard's Lease object")
	var err error
	o.shard, err = v1alpha1.ParseShard(o.shardText)
	check(err == nil, "--shard: %w", err)
	o.roots, err = probe.LoadRoots(o.probeCA)
	check(err == nil, "--probe-ca: %w", err)
	return errors.Join(append(errs, o.Common.Validate())...)
}
