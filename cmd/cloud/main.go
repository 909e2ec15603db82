// Command cloud is the cloud adapter, a sidecar of the hooks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
)

func main() { os.Exit(program.Main("cloud", run)) }

// registry has one line for each cloud.
func registry(o *options) provider.Registry {
	return provider.Registry{
		gcp.Type: gcp.Constructor(gcp.Options{Endpoint: o.gcpEndpoint}),
	}
}

// run runs the adapter until ctx ends. Logs and help go to out.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	log, err := o.Logger(out)
	if err != nil {
		return err
	}
	providers, err := registry(o).Load(ctx, o.providersConfig, o.installation)
	if err != nil {
		return err
	}
	defer func() {
		for _, named := range providers {
			err = errors.Join(err, named.Close())
		}
	}()
	cfg, err := kubeConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	return serve(ctx, o, providers, cfg, log)
}

// kubeConfig returns nil without an API server: path is empty and this is not a Pod.
func kubeConfig(path string) (*rest.Config, error) {
	cfg, err := kube.Config(path, "cloud")
	if path == "" && errors.Is(err, rest.ErrNotInCluster) {
		return nil, nil
	}
	return cfg, err
}

func serve(ctx context.Context, o *options, providers []provider.Named, cfg *rest.Config, log *slog.Logger) error {
	reg := ops.NewRegistry()
	a, err := cloud.New(cloud.Config{
		Socket: o.socket, Installation: o.installation, Providers: providers,
		ListInterval: o.listInterval, QuotaRetry: o.quotaRetry,
		MutationsPerSecond: o.mutations, MutationsBurst: o.mutationsBurst,
		Kube: cfg, SystemNamespace: o.systemNamespace,
		GCInterval: o.gcInterval, GCMinAge: o.gcMinAge, GCDryRun: o.gcDryRun, GCDisabled: o.gcDisabled(),
		Namespace: o.namespace, Registry: reg, Log: log,
	})
	if err != nil {
		return err
	}
	health := &ops.Server{Addr: o.OpsAddr, Registry: reg, Ready: a.Ready, Log: log}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.Run(ctx) })
	g.Go(func() error { return health.Run(ctx) })
	return g.Wait()
}

const intro = `Makes, observes and deletes the cloud instances of Managed Proxies. It serves the
hooks on a unix socket and acts while it holds the Lease cloud-INSTALLATION.`

// options are the parsed flags.
type options struct {
	flags.Common
	socket            string
	providersConfig   string
	installation      string
	gcpEndpoint       string
	listInterval      time.Duration
	quotaRetry        time.Duration
	mutations         float64
	mutationsBurst    int
	gcInterval        time.Duration
	gcMinAge          time.Duration
	gcDryRun          bool
	gcAllowNamespaced bool
	namespace         string
	systemNamespace   string
}

func parseOptions(args []string, out io.Writer) (*options, error) {
	var o options
	fs := flags.NewSet("cloud", intro, out)
	o.Register(fs, ":8086")
	fs.StringVar(&o.socket, "socket", "", "`path` of the unix socket that the hooks call")
	fs.StringVar(&o.providersConfig, "providers-config", "", "`path` of the provider config, the same as of the hooks")
	fs.StringVar(&o.installation, "installation", "", "`name` of this installation, a label of all its instances; it must be unique in each project, and never change")
	fs.StringVar(&o.gcpEndpoint, "gcp-endpoint", "", "`URL` of a Compute Engine stand-in, for tests; it receives no credentials")
	fs.DurationVar(&o.listInterval, "list-interval", 10*time.Second, "`time` between two lists of one account")
	fs.DurationVar(&o.quotaRetry, "quota-retry", 5*time.Minute, "`time` until inserts into a zone are retried after a quota was exceeded")
	fs.Float64Var(&o.mutations, "mutations-per-second", 5, "average `number` of inserts and deletes per second")
	fs.IntVar(&o.mutationsBurst, "mutations-burst", 20, "`number` of inserts and deletes in a burst")
	fs.DurationVar(&o.gcInterval, "gc-interval", 10*time.Minute, "`time` between two sweeps; an orphan is deleted in the second one that finds it")
	fs.DurationVar(&o.gcMinAge, "gc-min-age", 10*time.Minute, "minimum `age` of an orphan, well above the slowest insert")
	fs.BoolVar(&o.gcDryRun, "gc-dry-run", false, "log orphans instead of deleting them")
	fs.BoolVar(&o.gcAllowNamespaced, "gc-allow-namespaced", false, "collect orphans although --namespace is set: instances of Proxies in other namespaces then count as orphans")
	fs.StringVar(&o.namespace, "namespace", "", "`namespace` of all Proxies of this installation; empty means every namespace")
	fs.StringVar(&o.systemNamespace, "system-namespace", kube.OwnNamespace(), "`namespace` of the Lease")
	if err := flags.Parse(fs, args); err != nil {
		return nil, err
	}
	return &o, o.validate()
}

// installationPattern matches label values that, after "cloud-", name a Lease.
var installationPattern = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,48}[a-z0-9])?$`)

// validate returns all errors, each with its flag.
func (o *options) validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.socket == "", "--socket is missing: name a path in a folder that the hooks share")
	refuse(len(o.socket) > 107, "--socket has %d characters: Linux takes 107", len(o.socket))
	refuse(o.providersConfig == "", "--providers-config is missing: name the provider config")
	refuse(!installationPattern.MatchString(o.installation), "--installation %q: want 1 to 50 lower-case letters, digits and -, beginning with a letter", o.installation)
	refuse(o.listInterval < time.Second, "--list-interval %s: want 1s or more", o.listInterval)
	refuse(o.quotaRetry < time.Second, "--quota-retry %s: want 1s or more", o.quotaRetry)
	refuse(!(o.mutations > 0 && o.mutations <= 1000), "--mutations-per-second %g: want more than 0, at most 1000", o.mutations) // NaN is neither
	refuse(o.mutationsBurst < 1, "--mutations-burst %d: want 1 or more", o.mutationsBurst)
	refuse(o.gcInterval < time.Second, "--gc-interval %s: want 1s or more", o.gcInterval)
	refuse(o.gcMinAge < time.Second, "--gc-min-age %s: want 1s or more", o.gcMinAge)
	refuse(o.systemNamespace == "", "--system-namespace is empty: name the namespace of the Lease")
	if o.gcpEndpoint != "" {
		u, err := url.Parse(o.gcpEndpoint)
		refuse(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "", "--gcp-endpoint %q: want a URL such as http://127.0.0.1:8095", o.gcpEndpoint)
	}
	errs = append(errs, o.Validate())
	return errors.Join(errs...)
}

// gcDisabled is the reason not to collect orphans, "" for none.
func (o *options) gcDisabled() string {
	if o.namespace != "" && !o.gcAllowNamespaced {
		return "--namespace is set, so that Proxies in other namespaces are not seen and their instances would count as orphans; set --gc-allow-namespaced if there are none"
	}
	return ""
}
