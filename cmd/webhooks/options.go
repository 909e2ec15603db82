package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	flag "github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/intstr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

const intro = `webhooks serves Metacontroller's customize, sync and finalize hooks for Proxies:
POST /hooks/customize, /hooks/sync and /hooks/finalize. Its decisions need no
access to the API server; Events about Proxies do (--events), with --kubeconfig
or, in a Pod, its own service account. Proxies of a cloud provider (type gcp) also
need the cloud adapter beside it: the program cloud, on the unix socket
--cloud-socket, with the same provider config. While the adapter does not answer,
instances stay as they are.`

type options struct {
	flags.Common
	listen           string
	tlsCert, tlsKey  string
	tokenFile        string
	insecure         bool
	providersConfig  string
	cloudSocket      string
	cloudInitSecrets bool
	events           bool
	maxReplacing     string
	limit            intstr.IntOrString
	timing           proxy.Timing
}

// parseOptions reads the command line and the environment, and returns
// flags.ErrHelp after printing help to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	fs := flags.NewSet("webhooks", intro, out)
	o.register(fs)
	if err := flags.Parse(fs, args); err != nil {
		return options{}, err
	}
	return o, o.validate()
}

func (o *options) register(fs *flag.FlagSet) {
	fs.StringVar(&o.listen, "listen", ":8443", "`address` that serves the hooks")
	fs.StringVar(&o.tlsCert, "tls-cert", "", "PEM `file` with the certificate; reloaded when it changes")
	fs.StringVar(&o.tlsKey, "tls-key", "", "PEM `file` with its key; reloaded when it changes")
	fs.StringVar(&o.tokenFile, "token-file", "", "`file` with the accepted bearer tokens, one a line; reloaded when it changes")
	fs.BoolVar(&o.insecure, "insecure", false, "start without TLS or without a token")
	fs.StringVar(&o.providersConfig, "providers-config", "", "YAML `file` with the providers that Proxies name")
	fs.StringVar(&o.cloudSocket, "cloud-socket", "", "`path` of the cloud adapter's unix socket; required when a provider is of type gcp")
	fs.BoolVar(&o.cloudInitSecrets, "cloud-init-secrets", false, "let Proxies take cloud-init from labelled Secrets; makes Metacontroller watch Secrets in all namespaces")
	fs.BoolVar(&o.events, "events", true, "send Kubernetes Events about Proxies, best effort; without an API server none are sent, and everything else works")
	fs.StringVar(&o.maxReplacing, "max-replacing", "20%", "`part` of a provider's Proxies, or their number, that may be replaced at once because of edited specs")
	fs.DurationVar(&o.timing.ProvisioningDeadline, "provisioning-deadline", 10*time.Minute, "timeout for an instance to run, for its ProxyProbe to exist, and for a replacement to become Ready; after it the status shows a failure")
	fs.DurationVar(&o.timing.ProvisioningPoll, "provisioning-poll", 5*time.Second, "resync period while an instance is being created")
	fs.DurationVar(&o.timing.DriftPoll, "drift-poll", time.Minute, "resync period while an instance runs")
	fs.DurationVar(&o.timing.RemovalPoll, "deletion-poll", 5*time.Second, "resync period while an instance is being removed")
	fs.DurationVar(&o.timing.BudgetPoll, "budget-poll", 5*time.Second, "resync period while a replacement waits for --max-replacing, and time to the resync after a replacement is complete")
	fs.DurationVar(&o.timing.QuotaRetry, "quota-retry", 5*time.Minute, "resync period while a cloud quota or a zone's capacity is exhausted; earlier if the cloud adapter retries earlier")
	o.Register(fs, ":8081")
}

// validate returns all errors at once.
func (o *options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(flags.Listenable(o.listen), "--listen %q: want host:port, such as :8443", o.listen)
	check((o.tlsCert == "") == (o.tlsKey == ""), "--tls-cert and --tls-key: give both or neither")
	check(o.tlsCert != "" || o.insecure, "--tls-cert and --tls-key are missing: name them, or serve in the clear with --insecure")
	check(o.tokenFile != "" || o.insecure, "--token-file is missing: name it, or accept every caller with --insecure")
	check(o.providersConfig != "", "--providers-config is missing: name a YAML file; for External proxies alone it holds \"providers: []\"")
	limit, err := webhooks.ParseLimit(o.maxReplacing)
	check(err == nil, "--max-replacing: %w", err)
	o.limit = limit
	atLeast := func(name string, d time.Duration) {
		check(d >= minDuration, "--%s %s: want at least %s", name, d, minDuration)
	}
	atLeast("provisioning-deadline", o.timing.ProvisioningDeadline)
	atLeast("provisioning-poll", o.timing.ProvisioningPoll)
	atLeast("drift-poll", o.timing.DriftPoll)
	atLeast("deletion-poll", o.timing.RemovalPoll)
	atLeast("budget-poll", o.timing.BudgetPoll)
	atLeast("quota-retry", o.timing.QuotaRetry)
	check(len(o.cloudSocket) <= 107, "--cloud-socket has %d characters: Linux takes 107", len(o.cloudSocket))
	return errors.Join(append(errs, o.Common.Validate())...)
}

// minDuration prevents hot loops.
const minDuration = 50 * time.Millisecond
