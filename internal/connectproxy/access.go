package connectproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// dialTimeout bounds a connect with its name lookup. Squid waits for a minute; users of a laptop wait less.
const dialTimeout = 10 * time.Second

// Access is the rule of who may reach what. The zero value denies every request.
type Access struct {
	Clients []netip.Prefix // the ranges of the clients that may use the proxy
	Ports   []uint16       // the destination ports that clients may reach
	// Destinations are the ranges that clients may reach, Closed those of them that they may not.
	Destinations, Closed []netip.Prefix
}

// allowsRequest decides before a name lookup, so that other clients cannot make the proxy look up names.
func (a *Access) allowsRequest(client netip.Addr, port uint16) bool {
	return contains(a.Clients, client.Unmap()) && slices.Contains(a.Ports, port)
}

// allowsDestination decides on one address that the destination resolves to. No rule opens the unspecified addresses,
// which Linux takes for the host itself, and multicast.
func (a *Access) allowsDestination(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap() // IPv4-in-IPv6 forms and zones match no prefix
	return !addr.IsUnspecified() && !addr.IsMulticast() && contains(a.Destinations, addr) && !contains(a.Closed, addr)
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Resolver looks up names. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to the destinations that Access allows. Its Open is one for a Proxy.
type Dialer struct {
	Access
	From     netip.Addr // the local address of connections; invalid for the kernel's choice
	Resolver Resolver   // looks up names; nil for the system's
}

// Open connects to the destination of req. Every address that the name resolves to must be allowed, and the dialed
// address is one of those that were checked: a name that resolves differently the next time (DNS rebinding) gains
// nothing. Its errors are of type *Refusal.
func (d *Dialer) Open(ctx context.Context, req Request) (net.Conn, error) {
	client, err := netip.ParseAddrPort(req.Client.String())
	if err != nil {
		return nil, &Refusal{http.StatusInternalServerError, "proxy_internal_error", fmt.Errorf("client address %q: %w", req.Client, err)}
	}
	host, port, err := splitTarget(req.Target)
	if err != nil {
		return nil, badRequest(err)
	}
	if !d.allowsRequest(client.Addr(), port) {
		return nil, &Refusal{http.StatusForbidden, "http_request_denied", errDenied}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, networkRefusal(fmt.Errorf("look up %q: %w", host, err), "dns_timeout", "dns_error")
	}
	for _, addr := range addrs {
		if !d.allowsDestination(addr) {
			return nil, &Refusal{http.StatusForbidden, "destination_ip_prohibited", fmt.Errorf("%s: %w", addr, errDenied)}
		}
	}
	return d.dialAny(ctx, addrs, port)
}

var errDenied = errors.New("the access rules deny this request")

func splitTarget(hostport string) (string, uint16, error) {
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("target %q is not host:port", hostport)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("target %q: want a port from 1 to 65535", hostport)
	}
	return host, uint16(port), nil
}

func (d *Dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.WithZone("").Unmap()}, nil
	}
	addrs, err := cmp.Or[Resolver](d.Resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no addresses")
	}
	return addrs, err
}

// dialAny tries the addresses in order.
func (d *Dialer) dialAny(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	var last error
	for _, addr := range addrs {
		conn, err := d.dial(ctx, netip.AddrPortFrom(addr.WithZone("").Unmap(), port))
		if err == nil {
			return conn, nil
		}
		last = err
	}
	if errors.Is(last, syscall.ECONNREFUSED) {
		return nil, networkRefusal(last, "", "connection_refused")
	}
	return nil, networkRefusal(last, "connection_timeout", "destination_unavailable")
}

func (d *Dialer) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var dialer net.Dialer
	if d.From.IsValid() {
		if d.From.Is4() != to.Addr().Is4() {
			return nil, fmt.Errorf("connect to %s: the outgoing address %s is of the other IP version", to, d.From)
		}
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.From, 0))
	}
	return dialer.DialContext(ctx, "tcp", to.String())
}

// networkRefusal names a timeout or another failure.
func networkRefusal(err error, timeout, other string) *Refusal {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return &Refusal{http.StatusGatewayTimeout, timeout, err}
	}
	return &Refusal{http.StatusServiceUnavailable, other, err}
}
