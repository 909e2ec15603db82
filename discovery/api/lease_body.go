package api

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// granted is a lease with what its holder needs.
type granted struct {
	lease lease.Lease
	proxy *fleet.Proxy
	user  *url.Userinfo // nil when the proxy asks for no password
}

// leaseBody is a lease in answers.
type leaseBody struct {
	LeaseID      string      `json:"leaseID"`
	Proxy        leasedProxy `json:"proxy"`
	ExpiresAt    time.Time   `json:"expiresAt"`
	TTLSeconds   int64       `json:"ttlSeconds"`
	Target       string      `json:"target"`
	Session      string      `json:"session,omitempty"`
	FencingToken uint64      `json:"fencingToken"`
}

// grantBody is the answer to a granted POST /v1/leases. It alone ever holds
// credentials, in ProxyURL.
type grantBody struct {
	leaseBody
	ProxyURL string `json:"proxyURL"`
}

// leasedProxy has no host, port and attributes while the fleet is not known.
type leasedProxy struct {
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Host       string            `json:"host,omitempty"`
	Port       int32             `json:"port,omitempty"`
	Attributes map[string]string `json:"attributes,omitzero"`
}

// newLeaseBody takes nil for a proxy that is not known.
func newLeaseBody(l lease.Lease, p *fleet.Proxy) leaseBody {
	namespace, name, _ := strings.Cut(l.Proxy, "/")
	out := leaseBody{
		LeaseID:      l.ID,
		Proxy:        leasedProxy{Name: name, Namespace: namespace},
		ExpiresAt:    roundDown(l.ExpiresAt),
		TTLSeconds:   int64(l.TTL / time.Second),
		Target:       l.Target,
		Session:      l.Session,
		FencingToken: l.FencingToken,
	}
	if p != nil {
		out.Proxy.Host, out.Proxy.Port, out.Proxy.Attributes = p.Host, p.Port, p.Attributes
	}
	return out
}

func newGrantBody(g granted) grantBody {
	proxyURL := url.URL{Scheme: string(g.proxy.Scheme), User: g.user, Host: net.JoinHostPort(g.proxy.Host, strconv.Itoa(int(g.proxy.Port)))}
	return grantBody{leaseBody: newLeaseBody(g.lease, g.proxy), ProxyURL: proxyURL.String()}
}
