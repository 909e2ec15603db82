package probe

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

// probeURL is a parsed probe URL.
type probeURL struct {
	tunnel    bool   // https: through CONNECT, with TLS inside
	host      string // without port or brackets: for TLS and messages
	hostField string // for the Host header
	authority string // host:port, for CONNECT
	path      string // with the query, for the request line in a tunnel
}

// parseURL parses a probe URL. Its errors do not repeat the URL, whose query may be
// confidential.
func parseURL(raw string) (probeURL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return probeURL{}, errors.New("probeURL is not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return probeURL{}, errors.New("probeURL must start with https:// or http://")
	case u.User != nil:
		return probeURL{}, errors.New("probeURL must not hold a user or password")
	case u.Hostname() == "":
		return probeURL{}, errors.New("probeURL has no host")
	case !printableASCII(u.Host):
		return probeURL{}, errors.New("the host of probeURL has characters outside ASCII; write it in punycode (xn--...)")
	}
	port, err := portOf(u)
	if err != nil {
		return probeURL{}, err
	}
	return probeURL{
		tunnel:    u.Scheme == "https",
		host:      u.Hostname(),
		hostField: u.Host,
		authority: net.JoinHostPort(u.Hostname(), port),
		path:      escaped(u.RequestURI()),
	}, nil
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

func portOf(u *url.URL) (string, error) {
	port := cmp.Or(u.Port(), defaultPorts[u.Scheme])
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("the port of probeURL is not between 1 and 65535")
	}
	return port, nil
}

// escaped percent-encodes the characters that a request line cannot contain: package
// url leaves a query as it was written.
func escaped(uri string) string {
	if printableASCII(uri) {
		return uri
	}
	var out strings.Builder
	for i := range len(uri) {
		if c := uri[i]; c <= ' ' || c > '~' {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

func printableASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// authorization returns the Proxy-Authorization header by RFC 7617: base64 of
// user:password.
func authorization(c *credentials.Credentials) (string, error) {
	if c == nil {
		return "", nil
	}
	if err := c.Validate(); err != nil {
		return "", err
	}
	info := c.Userinfo()
	password, _ := info.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(info.Username()+":"+password)), nil
}
