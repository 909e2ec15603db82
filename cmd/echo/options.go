package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
)

const intro = `echo is a self-hosted probe target. It answers GET on every path with the nonce from
the query, the source address of the request, and the headers by which proxies
identify their clients. With its URL as healthCheck.probeURL and
healthCheck.exitProof set, the prober learns each proxy's exit address, and
detects responses that another server sent in its place.

It must see the source addresses of the proxies: do not put a load balancer in
front of it that hides them. It is stateless, needs no permissions, and does not
authenticate clients.`

type options struct {
	flags.Logging
	listen, tlsListen string
	tlsCert, tlsKey   string
	tls               *tls.Config
	opsAddr           string
}

// parseOptions reads the command line and the environment, and returns
// flags.ErrHelp after printing help to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	fs := flags.NewSet("echo", intro, out)
	fs.StringVar(&o.listen, "listen", ":8080", "`address` for plain HTTP, where probes can detect headers that a proxy adds; empty for none")
	fs.StringVar(&o.tlsListen, "tls-listen", "", "`address` for HTTPS, such as :8443; empty for none")
	fs.StringVar(&o.tlsCert, "tls-cert", "", "PEM `file` with the certificate for --tls-listen; read at startup: restart to reload it")
	fs.StringVar(&o.tlsKey, "tls-key", "", "PEM `file` with its key")
	fs.StringVar(&o.opsAddr, "ops-addr", "127.0.0.1:8085", "`address` that serves /livez, /readyz and /metrics without authentication")
	o.Logging.Register(fs, "info", "json")
	if err := flags.Parse(fs, args); err != nil {
		return options{}, err
	}
	return o, o.validate()
}

// validate returns all errors at once, and loads the certificate.
func (o *options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.listen != "" || o.tlsListen != "", "--listen and --tls-listen are both empty: there is nothing to serve")
	check(o.listen == "" || flags.Listenable(o.listen), "--listen %q: want host:port, such as :8080", o.listen)
	check(o.tlsListen == "" || flags.Listenable(o.tlsListen), "--tls-listen %q: want host:port, such as :8443", o.tlsListen)
	check(flags.Listenable(o.opsAddr), "--ops-addr %q: want host:port, such as 127.0.0.1:8085", o.opsAddr)
	given := o.tlsCert != "" && o.tlsKey != ""
	check(o.tlsListen == "" || given, "--tls-listen needs --tls-cert and --tls-key")
	check(o.tlsListen != "" || o.tlsCert+o.tlsKey == "", "--tls-cert and --tls-key are for --tls-listen, which is empty")
	if o.tlsListen != "" && given {
		pair, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		check(err == nil, "--tls-cert %s, --tls-key %s: %w", o.tlsCert, o.tlsKey, err)
		o.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	return errors.Join(append(errs, o.Logging.Validate())...)
}
