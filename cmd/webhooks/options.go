package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	flag "github.com/spf13/pflag"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
)

const intro = `webhooks answers Metacontroller's customize, sync and finalize hooks for Proxies:
POST /hooks/customize, /hooks/sync and /hooks/finalize. To decide it needs no
access to the API server; it has one to send Events about Proxies (--events), with
--kubeconfig or, in a Pod, its own account. Proxies of a cloud
provider (type gcp) also need the cloud adapter beside it: the program cloud, on
the unix socket --cloud-socket, with the same provider config. While that one
does not answer, instances stay as they are.`

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
	limit            webhooks.Limit
	timing           webhooks.Timing
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
	fs.StringVar(&o.tlsCert, "tls-cert", "", "PEM `file` with the certificate; read again when it changes")
	fs.StringVar(&o.tlsKey, "tls-key", "", "PEM `file` with its key; read again when it changes")
	fs.StringVar(&o.tokenFile, "token-file", "", "`file` with the bearer tokens that callers may send, one a line; read again when it changes")
	fs.BoolVar(&o.insecure, "insecure", false, "start without TLS or without a token")
	fs.StringVar(&o.providersConfig, "providers-config", "", "YAML `file` with the providers that Proxies name")
	fs.StringVar(&o.cloudSocket, "cloud-socket", "", "`path` of the cloud adapter's unix socket; required when a provider is of type gcp")
	fs.BoolVar(&o.cloudInitSecrets, "cloud-init-secrets", false, "let Proxies take cloud-init from labelled Secrets; makes Metacontroller watch Secrets in all namespaces")
	fs.BoolVar(&o.events, "events", true, "send Kubernetes Events about Proxies, best effort; without an API server none are sent, and all else works")
	fs.StringVar(&o.maxReplacing, "max-replacing", "20%", "`part` of a provider's Proxies, or their number, that may be replaced at once because of edited specs")
	fs.DurationVar(&o.timing.ProvisioningDeadline, "provisioning-deadline", 10*time.Minute, "how long an instance, its ProxyProbe, or a replacement until it is Ready may take before it counts as failed, and the status says so")
	fs.DurationVar(&o.timing.ProvisioningPoll, "provisioning-poll", 5*time.Second, "time to the next look while an instance comes up")
	fs.DurationVar(&o.timing.DriftPoll, "drift-poll", time.Minute, "time to the next look while an instance runs")
	fs.DurationVar(&o.timing.DeletionPoll, "deletion-poll", 5*time.Second, "time to the next look while an instance goes")
	fs.DurationVar(&o.timing.QuotaRetry, "quota-retry", 5*time.Minute, "time to the next look while a cloud quota or a zone's capacity is used up; sooner if the cloud adapter tries sooner")
	o.Register(fs, ":8081")
}

// validate returns everything that is wrong at once.
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
	check(o.tokenFile != "" || o.insecure, "--token-file is missing: name it, or let everybody call with --insecure")
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
	atLeast("deletion-poll", o.timing.DeletionPoll)
	atLeast("quota-retry", o.timing.QuotaRetry)
	check(len(o.cloudSocket) <= 107, "--cloud-socket has %d characters: Linux takes 107", len(o.cloudSocket))
	return errors.Join(append(errs, o.Common.Validate())...)
}

// minDuration keeps polls from becoming hot loops.
const minDuration = 50 * time.Millisecond
