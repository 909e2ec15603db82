package probe

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

// target is a probe URL, taken apart.
type target struct {
	tunnel    bool   // https: through CONNECT, with TLS inside
	host      string // without port or brackets: for TLS and messages
	hostField string // as the Host header has it
	authority string // host:port, as CONNECT has it
	path      string // with the query, as the request line has it in a tunnel
}

// parseTarget reads a probe URL. Its errors say what is wrong without
// repeating the URL, whose query may be nobody's business.
func parseTarget(raw string) (target, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return target{}, errors.New("probeURL is not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return target{}, errors.New("probeURL must start with https:// or http://")
	case u.User != nil:
		return target{}, errors.New("probeURL must not hold a user or password")
	case u.Hostname() == "":
		return target{}, errors.New("probeURL has no host")
	case !printableASCII(u.Host):
		return target{}, errors.New("the host of probeURL has characters outside ASCII; write it in punycode (xn--...)")
	}
	port, err := portOf(u)
	if err != nil {
		return target{}, err
	}
	t := target{
		tunnel:    u.Scheme == "https",
		host:      u.Hostname(),
		hostField: u.Host,
		authority: net.JoinHostPort(u.Hostname(), port),
		path:      escaped(u.RequestURI()),
	}
	return t, nil
}

func portOf(u *url.URL) (string, error) {
	switch p := u.Port(); {
	case p == "" && u.Scheme == "https":
		return "443", nil
	case p == "":
		return "80", nil
	default:
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return "", errors.New("the port of probeURL is not between 1 and 65535")
		}
		return p, nil
	}
}

// escaped percent-encodes what a request line cannot hold: package url leaves a query as
// it was written.
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

// authorization returns the value of the Proxy-Authorization header by RFC 7617:
// base64 of user:password, wherefore the user must not have a colon.
func authorization(c *credentials.Credentials) (string, error) {
	if c == nil {
		return "", nil
	}
	info := c.Userinfo()
	password, _ := info.Password()
	if strings.Contains(info.Username(), ":") {
		return "", fmt.Errorf("the username has a colon, which Basic authentication cannot carry")
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(info.Username()+":"+password)), nil
}
