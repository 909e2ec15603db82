package connectproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"syscall"
)

// Resolver looks up names. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// refusal is a request that was not let through: what the client is told, and
// the error type that RFC 9209 (the Proxy-Status header) has for it.
type refusal struct {
	status int
	kind   string
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

var errDenied = errors.New("the access rules deny this request")

// dial connects to hostport for f, whose Port and Destination it fills in. Each
// address that the name resolves to must be allowed, and the address that is
// dialled is one of those that were checked: a name that answers differently
// the next time (DNS rebinding) gains nothing. All its errors are refusals.
func (p *Proxy) dial(ctx context.Context, f Facts, hostport string) (net.Conn, error) {
	host, port, err := splitTarget(hostport)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "http_request_error", err}
	}
	f.Port = port
	ctx, cancel := context.WithTimeout(ctx, p.dialTimeout)
	defer cancel()
	if p.cfg.Decide(f) == Denied {
		return nil, &refusal{http.StatusForbidden, "http_request_denied", errDenied}
	}
	addrs, err := p.resolve(ctx, host)
	if err != nil {
		return nil, lookupRefusal(fmt.Errorf("look up %q: %w", host, err))
	}
	for _, addr := range addrs {
		f.Destination = addr
		if unreachableByRule(addr) || p.cfg.Decide(f) != Allowed {
			return nil, &refusal{http.StatusForbidden, "destination_ip_prohibited", fmt.Errorf("%s: %w", addr, errDenied)}
		}
	}
	return p.dialAny(ctx, addrs, port)
}

func splitTarget(hostport string) (string, uint16, error) {
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("target %q is not host:port", hostport)
	}
	port, err := parsePort(portText)
	if err != nil {
		return "", 0, fmt.Errorf("target %q: %w", hostport, err)
	}
	return host, port, nil
}

// resolve returns the addresses of host without IPv4-in-IPv6 forms and zones,
// either of which would slip past the CIDRs of the rules.
func (p *Proxy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.WithZone("").Unmap()}, nil
	}
	addrs, err := p.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, errors.New("no addresses")
	}
	out := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		out[i] = a.WithZone("").Unmap()
	}
	return out, nil
}

// unreachableByRule holds for the addresses that no rule may open: Linux takes
// 0.0.0.0 and :: for the host itself, past any rule about 127.0.0.0/8.
func unreachableByRule(addr netip.Addr) bool {
	return addr.IsUnspecified() || addr.IsMulticast()
}

// dialAny tries the addresses in order, from the outgoing address if there is
// one.
func (p *Proxy) dialAny(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	var last error
	for _, addr := range addrs {
		conn, err := p.dialOne(ctx, netip.AddrPortFrom(addr, port))
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, dialRefusal(last)
}

func (p *Proxy) dialOne(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{}
	if from := p.cfg.Outgoing; from.IsValid() {
		if from.Is4() != to.Addr().Is4() {
			return nil, fmt.Errorf("connect to %s: the outgoing address %s is of the other IP version", to, from)
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return d.DialContext(ctx, "tcp", to.String())
}

func lookupRefusal(err error) *refusal {
	if errors.Is(err, context.DeadlineExceeded) {
		return &refusal{http.StatusGatewayTimeout, "dns_timeout", err}
	}
	return &refusal{http.StatusServiceUnavailable, "dns_error", err}
}

func dialRefusal(err error) *refusal {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return &refusal{http.StatusGatewayTimeout, "connection_timeout", err}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &refusal{http.StatusServiceUnavailable, "connection_refused", err}
	}
	return &refusal{http.StatusServiceUnavailable, "destination_unavailable", err}
}

// refuse tells the client why, and what is wrong with what.
func refuse(w http.ResponseWriter, r *refusal) {
	w.Header().Set("Proxy-Status", "connectproxy; error="+r.kind)
	w.Header().Set("Connection", "close")
	http.Error(w, strconv.Itoa(r.status)+" "+r.err.Error(), r.status)
}
