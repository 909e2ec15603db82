package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const intro = `prober probes every proxy through the proxy, at the interval of its health check,
and writes the verdict into the status of its ProxyProbe when it changes.

Large fleets are split among probers by --shard; every part needs one. Replicas of
a shard elect a leader through the shard's Lease object in --system-namespace: one
probes, the others stand by. Discovery treats a shard's verdicts as stale when its
Lease expires. docs/capacity.md has the number of proxies per core.`

// maxWorkers keeps a typo from opening a million connections.
const maxWorkers = 10_000

type options struct {
	flags.Common
	workers         int
	shardText       string
	shard           v1alpha1.Shard
	probeCA         string
	roots           *x509.CertPool
	outage          outage.Config
	namespace       string
	systemNamespace string
}

// parseOptions reads the command line and the environment, and returns
// flags.ErrHelp after printing help to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	fs := flags.NewSet("prober", intro, out)
	fs.IntVar(&o.workers, "workers", 64, "maximum `number` of concurrent probes; a proxy that hangs occupies one until its timeout, so keep it well above dead proxies x timeout / interval")
	fs.StringVar(&o.shardText, "shard", "0/1", "part `i/n` of the fleet that this prober probes, by UID, with i from 0 to n-1; change n on all probers within discovery's --verdict-max-age")
	fs.StringVar(&o.probeCA, "probe-ca", "", "PEM `file` with the only trusted authorities for certificates of probe targets; empty trusts the system's")
	fs.BoolVar(&o.outage.DirectCheck, "direct-check", true, "before a verdict turns to Unhealthy for failures that the probe target may have caused, fetch the probe URL without a proxy; the prober needs egress to it")
	fs.DurationVar(&o.outage.TargetHold, "target-hold", 30*time.Minute, "`time` for which verdicts are kept while a probe target is down; then they turn to Unknown")
	fs.Float64Var(&o.outage.FleetShare, "fleet-share", 0.5, "`share` of the proxies, of 10 or more results, that must not answer at once to suppress the verdict flips of those that do not; 0 for never")
	fs.DurationVar(&o.outage.FleetHold, "fleet-hold", 5*time.Minute, "longest `time` for which they are suppressed")
	fs.StringVar(&o.namespace, "namespace", "", "`namespace` whose ProxyProbes are watched; empty for all")
	fs.StringVar(&o.systemNamespace, "system-namespace", kube.OwnNamespace(), "`namespace` where the shard's Lease object is")
	o.Register(fs, ":8082")
	if err := flags.Parse(fs, args); err != nil {
		return options{}, err
	}
	return o, o.validate()
}

// validate returns all errors at once, and fills in the parsed flags.
func (o *options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.workers >= 1 && o.workers <= maxWorkers, "--workers %d: want 1 to %d", o.workers, maxWorkers)
	check(o.namespace == "" || isNamespace(o.namespace), "--namespace %q is not a namespace name: want lower-case letters, digits and -, at most 63, or nothing for all namespaces", o.namespace)
	check(o.systemNamespace != "", "--system-namespace is empty: name the namespace for the shard's Lease object")
	check(o.systemNamespace == "" || isNamespace(o.systemNamespace), "--system-namespace %q is not a namespace name: want lower-case letters, digits and -, at most 63", o.systemNamespace)
	check(o.outage.TargetHold >= 0, "--target-hold %s is negative", o.outage.TargetHold)
	check(o.outage.FleetHold >= 0, "--fleet-hold %s is negative", o.outage.FleetHold)
	check(o.outage.FleetShare >= 0 && o.outage.FleetShare <= 1, "--fleet-share %v: want 0 to 1", o.outage.FleetShare)
	var err error
	o.shard, err = v1alpha1.ParseShard(o.shardText)
	check(err == nil, "--shard: %w", err)
	o.roots, err = probe.LoadRoots(o.probeCA)
	check(err == nil, "--probe-ca: %w", err)
	return errors.Join(append(errs, o.Common.Validate())...)
}

func isNamespace(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }
