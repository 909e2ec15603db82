package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/connectproxy"
)

const intro = `connectproxy is a forward proxy: CONNECT tunnels and plain HTTP. It denies all
that is not allowed, either by the access rules of a squid.conf (--config) or
by --allow-client, --allow-destination and --allow-port together (--listen).`

type options struct {
	flags.Logging
	configFile   string
	listen       string
	clients      flags.List
	destinations flags.List
	ports        flags.List
}

func parse(args []string, out io.Writer) (*options, error) {
	var o options
	fs := flags.NewSet("connectproxy", intro, out)
	fs.StringVar(&o.configFile, "config", "", "`path` of a squid.conf; takes the place of the other flags about access")
	fs.StringVar(&o.listen, "listen", "", "`address` and port to listen on, such as 127.0.0.1:3128; connections to destinations come from it")
	fs.Var(&o.clients, "allow-client", "`CIDR` of clients that may use the proxy; repeat it or separate with commas")
	fs.Var(&o.destinations, "allow-destination", "`CIDR` that clients may reach; repeat it or separate with commas")
	fs.Var(&o.ports, "allow-port", "`port` that clients may reach; repeat it or separate with commas")
	o.Logging.Register(fs, "info", "json")
	if err := flags.Parse(fs, args); err != nil {
		return nil, err
	}
	return &o, o.validate()
}

// validate lists all that is wrong with how the flags go together.
func (o *options) validate() error {
	var errs []error
	inline := o.listen != "" || len(o.clients)+len(o.destinations)+len(o.ports) > 0
	switch {
	case o.configFile != "" && inline:
		errs = append(errs, errors.New("--config excludes --listen, --allow-client, --allow-destination and --allow-port: give the one or the others"))
	case o.configFile == "":
		errs = append(errs,
			need(o.listen != "", "--listen is missing: say where to listen, such as 127.0.0.1:3128, or give --config"),
			need(len(o.clients) > 0, "--allow-client is missing: without it nobody may use the proxy"),
			need(len(o.destinations) > 0, "--allow-destination is missing: without it nothing can be reached"),
			need(len(o.ports) > 0, "--allow-port is missing: without it nothing can be reached"))
	}
	return errors.Join(append(errs, o.Logging.Validate())...)
}

func need(ok bool, message string) error {
	if ok {
		return nil
	}
	return errors.New(message)
}

// config reads the file or builds the configuration from the flags; its error
// names each flag with a bad value.
func (o *options) config() (*connectproxy.Config, error) {
	if o.configFile != "" {
		return connectproxy.ReadFile(o.configFile)
	}
	listen, errListen := netip.ParseAddrPort(o.listen)
	if errListen != nil {
		errListen = fmt.Errorf("--listen %q is not ADDRESS:PORT, such as 127.0.0.1:3128", o.listen)
	}
	clients, errClients := parseCIDRs("--allow-client", o.clients)
	destinations, errDestinations := parseCIDRs("--allow-destination", o.destinations)
	ports, errPorts := parsePorts("--allow-port", o.ports)
	if err := errors.Join(errListen, errClients, errDestinations, errPorts); err != nil {
		return nil, err
	}
	return connectproxy.Allowing(listen, clients, destinations, ports), nil
}

func parseCIDRs(flagName string, values []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(values))
	for _, v := range values {
		p, err := netip.ParsePrefix(v)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%s %q is not a CIDR, such as 127.0.0.0/8", flagName, v)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func parsePorts(flagName string, values []string) ([]uint16, error) {
	out := make([]uint16, 0, len(values))
	for _, v := range values {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%s %q is not a port from 1 to 65535", flagName, v)
		}
		out = append(out, uint16(n))
	}
	return out, nil
}
