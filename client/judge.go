package client

import (
	"errors"
	"net"
	"net/http"
	"strings"
)

// Judge makes a Result of what came of a request through a leased proxy, resp or
// err, in the way that most sites mean it. It returns false when neither says
// anything about the proxy. Captchas look different on every site: report those
// yourself.
func Judge(resp *http.Response, err error) (Result, bool) {
	if err != nil {
		return judgeError(err)
	}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return RateLimited, true
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusUnavailableForLegalReasons:
		return Banned, true
	case resp.StatusCode < http.StatusBadRequest:
		return OK, true
	}
	return "", false
}

func judgeError(err error) (Result, bool) {
	if errors.Is(err, ErrReleased) || errors.Is(err, ErrLost) {
		return "", false
	}
	var op *net.OpError
	toProxy := errors.As(err, &op) && (op.Op == "proxyconnect" || op.Op == "dial")
	var n net.Error
	late := errors.As(err, &n) && n.Timeout()
	switch {
	case toProxy && late:
		return ProxyTimeout, true
	case toProxy, strings.Contains(err.Error(), http.StatusText(http.StatusProxyAuthRequired)):
		return ConnectError, true
	case late:
		return TargetTimeout, true
	}
	return "", false
}
