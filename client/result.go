package client

import (
	"errors"
	"net"
	"net/http"
	"strings"
)

// Result is a crawler's result with a proxy.
type Result string

// Results of reports. The API's reference has the cooldown of each.
const (
	OK            Result = "ok"
	RateLimited   Result = "rate_limited"
	Banned        Result = "banned"
	Captcha       Result = "captcha"
	TargetTimeout Result = "target_timeout"
	ProxyTimeout  Result = "proxy_timeout"
	ConnectError  Result = "connect_error"
)

// Judge derives a Result from the response or error of a request through a leased
// proxy, in the way that most sites mean it. It returns false when they do not depend
// on the proxy. Captchas look different on every site: report those yourself.
func Judge(resp *http.Response, err error) (Result, bool) {
	if err != nil {
		return resultOf(err)
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

func resultOf(err error) (Result, bool) {
	if errors.Is(err, ErrReleased) || errors.Is(err, ErrLost) {
		return "", false
	}
	var op *net.OpError
	toProxy := errors.As(err, &op) && (op.Op == "proxyconnect" || op.Op == "dial")
	var n net.Error
	timedOut := errors.As(err, &n) && n.Timeout()
	switch {
	case toProxy && timedOut:
		return ProxyTimeout, true
	case toProxy, strings.Contains(err.Error(), http.StatusText(http.StatusProxyAuthRequired)):
		return ConnectError, true
	case timedOut:
		return TargetTimeout, true
	}
	return "", false
}
