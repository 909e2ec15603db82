package api

import (
	"net"
	"strconv"
	"strings"
	"unicode/utf8"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// login is what a proxy wants to know of its clients.
type login struct{ username, password string }

// grantBody is the answer to POST /v1/leases. Only it contains credentials.
type grantBody struct {
	leaseBody
	ProxyURL string `json:"proxyURL"`
	// The parts of ProxyURL, for libraries that take them one by one.
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Port   int32  `json:"port"`
	// Username and Password are nil where the proxy needs none, and where JSON cannot
	// hold them. An empty password is one.
	Username *string `json:"username,omitempty"`
	Password *string `json:"password,omitempty"`

	replayed bool // found by its key, see lease.Lease
}

// newGrantBody takes nil for the user of a proxy without credentials.
func newGrantBody(l lease.Lease, p *fleet.Proxy, user *login) grantBody {
	g := grantBody{
		leaseBody: newLeaseBody(l, p), ProxyURL: proxyURL(p, user),
		Scheme: p.Scheme, Host: p.Host, Port: p.Port, replayed: l.Replayed,
	}
	if user != nil && utf8.ValidString(user.username) && utf8.ValidString(user.password) {
		g.Username, g.Password = &user.username, &user.password
	}
	return g
}

func proxyURL(p *fleet.Proxy, user *login) string {
	userinfo := ""
	if user != nil {
		userinfo = percentEncode(user.username) + ":" + percentEncode(user.password) + "@"
	}
	return p.Scheme + "://" + userinfo + net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
}

// percentEncode leaves only unreserved characters (RFC 3986) as they are. Userinfo may
// contain sub-delimiters, too, but Chromium connects without the proxy when it finds
// one such as "=".
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for _, c := range []byte(s) {
		if isUnreserved(c) {
			out.WriteByte(c)
			continue
		}
		out.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return out.String()
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
