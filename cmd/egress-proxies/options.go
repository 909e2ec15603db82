package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client/command"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
)

const overview = `egress-proxies gives a program a proxy of the fleet.

  egress-proxies lease [flags] -- PROGRAM [ARGUMENTS]

leases a proxy, runs the program with it, and releases it. Example:

  export DISCOVERY_TOKEN=...
  egress-proxies lease --discovery http://discovery:8090 --target shop.example -- curl https://shop.example/

egress-proxies lease --help lists the flags.
`

const intro = `egress-proxies lease runs a program with a leased proxy.

The program finds the proxy in http_proxy, https_proxy, ftp_proxy, ws_proxy, wss_proxy and
all_proxy (in lower and upper case), in PROXY_URL, and in parts in PROXY_SCHEME, PROXY_HOST,
PROXY_PORT, PROXY_USERNAME and PROXY_PASSWORD. NO_PROXY is removed. The token is read from
DISCOVERY_TOKEN, which the program does not get, or from --token-file.

SIGTERM, SIGHUP, SIGINT and SIGQUIT are passed to the program, the last two unless standard
input is a terminal, which sends them itself.

The lease is renewed while the program runs. When it is lost, the program is stopped with
SIGTERM, ten seconds later with SIGKILL. By its exit status a result is reported: 0 is ok;
of curl, 5, 7 and 97 are connect_error and 28 is target_timeout; --report adds others.

The exit status is that of the program, 128 and the number of the signal that ended it,
2 for a bad command line, 75 when no proxy could be leased, 126 when the program could not
be started, and 127 when there is none of that name.`

// maxFile limits the token and CA files, in bytes.
const maxFile = 1 << 20

type options struct {
	flags.Logging
	discovery, tokenFile, caFile string
	selector, exclude, reports   flags.List
	keepRunning                  bool

	want    client.Want
	program []string
	results map[int]client.Result
}

// parse parses the flags before -- and the program after it.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	fs := flags.NewSet("egress-proxies lease", intro, out)
	fs.StringVar(&o.discovery, "discovery", "", "`URL` of the discovery API, such as http://discovery:8090")
	fs.StringVar(&o.tokenFile, "token-file", "", "`file` with the token; empty reads the variable DISCOVERY_TOKEN")
	fs.StringVar(&o.caFile, "ca-file", "", "PEM `file` with the authority of discovery's certificate; empty uses the system's")
	fs.StringVar(&o.want.Target, "target", "", "`site` that the proxy is for: proxies in cooldown for it are not leased, and reports concern it")
	fs.Var(&o.selector, "selector", "`NAME=VALUE` attributes of the proxy; repeat it or separate with commas")
	fs.StringVar(&o.want.Session, "session", "", "`name`: leases of one session get one proxy")
	fs.Var(&o.exclude, "exclude", "`NAMESPACE/NAME` of proxies not to lease; repeat it or separate with commas")
	fs.StringSliceVar(&o.want.Schemes, "schemes", []string{"http"}, "`schemes` of proxies that the program can use: http, https, socks5")
	fs.DurationVar(&o.want.TTL, "ttl", 5*time.Minute, "`duration` of the lease after each renewal, in whole seconds")
	fs.DurationVar(&o.want.Patience, "patience", time.Minute, "`duration` to wait for a free proxy; 0 does not wait")
	fs.BoolVar(&o.want.WaitForMatch, "wait-for-match", false, "wait also while no proxy matches the selector")
	fs.Var(&o.reports, "report", "`EXIT-STATUS=RESULT`: report this result when the program exits so; empty: none; repeat it or separate with commas")
	fs.BoolVar(&o.keepRunning, "keep-running", false, "do not stop the program when its lease is lost")
	o.Logging.Register(fs, "warn", "text")
	own, program, found := cutDashes(args)
	if err := flags.Parse(fs, own); err != nil {
		return nil, err
	}
	if !found || len(program) == 0 {
		return nil, errors.New("no program: write it after --, such as: egress-proxies lease -- curl https://shop.example/")
	}
	o.program = program
	return o, o.validate()
}

// cutDashes splits args at the first "--".
func cutDashes(args []string) (before, after []string, found bool) {
	i := slices.Index(args, "--")
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], true
}

func (o *options) validate() error {
	var errs []error
	if o.discovery == "" {
		errs = append(errs, errors.New("--discovery is required: the URL of the discovery API"))
	}
	o.want.Selector = map[string]string{}
	for _, item := range o.selector {
		name, value, found := strings.Cut(item, "=")
		if !found || name == "" {
			errs = append(errs, fmt.Errorf("--selector %q: want NAME=VALUE", item))
		}
		o.want.Selector[name] = value
	}
	for _, scheme := range o.want.Schemes {
		if !slices.Contains([]string{"http", "https", "socks5"}, scheme) {
			errs = append(errs, fmt.Errorf("--schemes %q: want http, https or socks5", scheme))
		}
	}
	if o.want.TTL < time.Second {
		errs = append(errs, errors.New("--ttl: want a second or more"))
	}
	if o.want.Patience <= 0 {
		o.want.Patience = -1
	}
	o.want.Exclude = o.exclude
	var err error
	if o.results, err = command.ParseResults(o.reports); err != nil {
		errs = append(errs, fmt.Errorf("--report %w", err))
	}
	return errors.Join(append(errs, o.Logging.Validate())...)
}

// client returns a client of discovery with the token and the authority.
func (o *options) client() (*client.Client, error) {
	token := os.Getenv(command.TokenVariable)
	if o.tokenFile != "" {
		text, err := readFile(o.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	cfg := client.Config{URL: o.discovery, Token: token}
	if o.caFile != "" {
		text, err := readFile(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--ca-file %s: has no certificate in PEM", o.caFile)
		}
		cfg.HTTPClient = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	}
	c, err := client.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("--discovery: %w", err)
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return text, err
}
