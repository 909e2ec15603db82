// Command connectproxy is the forward proxy of the local stack where squid is not installed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/connectproxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program"
)

func main() { os.Exit(program.Main("connectproxy", run)) }

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	log, err := o.Logger(out)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen for proxy clients: %w", err)
	}
	log.Info("proxy listening", "addr", ln.Addr().String())
	return (&connectproxy.Proxy{Open: o.dialer.Open, Log: log}).Serve(ctx, ln)
}

const intro = `connectproxy is a forward proxy: CONNECT tunnels and plain HTTP. It denies every
request that --allow-client, --allow-destination and --allow-port do not allow
together, and those that --deny-destination denies.`

type options struct {
	flags.Logging
	listen string
	dialer connectproxy.Dialer

	clients, destinations, closed, ports flags.List
}

func parse(args []string, out io.Writer) (*options, error) {
	var o options
	fs := flags.NewSet("connectproxy", intro, out)
	fs.StringVar(&o.listen, "listen", "", "`address` and port to listen on, such as 127.0.0.1:3128; connections to destinations come from it")
	fs.Var(&o.clients, "allow-client", "`CIDR` of clients that may use the proxy; repeat it or separate with commas")
	fs.Var(&o.destinations, "allow-destination", "`CIDR` that clients may reach; repeat it or separate with commas")
	fs.Var(&o.closed, "deny-destination", "`CIDR` within --allow-destination that clients may not reach; repeat it or separate with commas")
	fs.Var(&o.ports, "allow-port", "`port` that clients may reach; repeat it or separate with commas")
	o.Logging.Register(fs, "info", "json")
	if err := flags.Parse(fs, args); err != nil {
		return nil, err
	}
	return &o, o.validate()
}

// validate completes the options; its error lists everything that is wrong, naming each flag.
func (o *options) validate() error {
	listen, err := netip.ParseAddrPort(o.listen)
	if o.listen == "" {
		err = errors.New("--listen is missing: set where to listen, such as 127.0.0.1:3128")
	} else if err != nil {
		err = fmt.Errorf("--listen %q is not ADDRESS:PORT, such as 127.0.0.1:3128", o.listen)
	}
	errs := []error{err, o.Logging.Validate()}
	for _, f := range []struct {
		name   string
		values flags.List
	}{{"--allow-client", o.clients}, {"--allow-destination", o.destinations}, {"--allow-port", o.ports}} {
		if len(f.values) == 0 {
			errs = append(errs, fmt.Errorf("%s is missing: without it the proxy denies every request", f.name))
		}
	}
	d := &o.dialer
	if !listen.Addr().IsUnspecified() { // no connection can come from an unspecified address
		d.From = listen.Addr()
	}
	var errClients, errDestinations, errClosed, errPorts error
	d.Clients, errClients = parseCIDRs("--allow-client", o.clients)
	d.Destinations, errDestinations = parseCIDRs("--allow-destination", o.destinations)
	d.Closed, errClosed = parseCIDRs("--deny-destination", o.closed)
	d.Ports, errPorts = parsePorts("--allow-port", o.ports)
	return errors.Join(append(errs, errClients, errDestinations, errClosed, errPorts)...)
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
