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

// grantBody is the answer to POST /v1/leases. Only it contains credentials, in
// ProxyURL.
type grantBody struct {
	leaseBody
	ProxyURL string `json:"proxyURL"`

	replayed bool // found by its key, see lease.Lease
}

// leasedProxy has no host, port and attributes while its instance is not in the
// snapshot.
type leasedProxy struct {
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Host       string            `json:"host,omitempty"`
	Port       int32             `json:"port,omitempty"`
	Attributes map[string]string `json:"attributes,omitzero"`
}

// newLeaseBody takes nil for a proxy that is not in the snapshot.
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

// newGrantBody takes nil for the user of a proxy without credentials.
func newGrantBody(l lease.Lease, p *fleet.Proxy, user *url.Userinfo) grantBody {
	proxyURL := url.URL{Scheme: string(p.Scheme), User: user, Host: net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))}
	return grantBody{leaseBody: newLeaseBody(l, p), ProxyURL: proxyURL.String(), replayed: l.Replayed}
}
