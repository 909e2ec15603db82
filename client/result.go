package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Result is a crawler's result with a proxy.
type Result string

// Results of reports. The API's reference has the cooldown of each.
const (
	OK                Result = "ok"
	RateLimited       Result = "rate_limited"
	Banned            Result = "banned"
	Captcha           Result = "captcha"
	TargetUnreachable Result = "target_unreachable"
	TargetTimeout     Result = "target_timeout"
	ProxyTimeout      Result = "proxy_timeout"
	ConnectError      Result = "connect_error"
)

var results = []Result{OK, RateLimited, Banned, Captcha, TargetUnreachable, TargetTimeout, ProxyTimeout, ConnectError}

// Valid reports whether discovery accepts the result.
func (r Result) Valid() bool { return slices.Contains(results, r) }

// ResultNames lists the results, separated by commas.
func ResultNames() string {
	names := make([]string, len(results))
	for i, r := range results {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// Report is what a crawler reports on a lease.
type Report struct {
	// Result of a request; "" reports nothing.
	Result Result
	// Target is the site of the result; "" for the lease's target.
	Target string
	// RetryAfter is how long the site asked to wait, for RateLimited and Banned; 0 for
	// discovery's cooldown.
	RetryAfter time.Duration
}

// Outcome is what one request showed about the proxy, the site and the next attempt.
// cases.json in this folder has the table that all clients implement.
type Outcome struct {
	// Report to send.
	Report Report
	// ChangeProxy: the next attempt should use another proxy.
	ChangeProxy bool
	// Retry: the same request may be sent again, when it is idempotent or none of it
	// reached the site. A site that fails through several proxies is down by itself.
	Retry bool
}

// Judge derives the Outcome of a request through a leased proxy from its response or
// error, in the way that most sites mean it. Captchas look different on every site:
// report those yourself. err may come with a response: that of reading its body, or of
// http.Client.CheckRedirect. Judge is exact for requests through Lease.HTTPClient; errors
// of other transports do not state the proxy's answer to CONNECT.
func Judge(resp *http.Response, err error) Outcome {
	scheme, site := "", siteOf(err)
	if resp != nil && resp.Request != nil && resp.Request.URL != nil {
		scheme, site = resp.Request.URL.Scheme, resp.Request.URL.Hostname()
	}
	if err != nil {
		return ofError(err, site, resp != nil)
	}
	after := retryAfter(resp.Header)
	switch {
	case resp.StatusCode == http.StatusProxyAuthRequired && scheme == "http":
		return ofProxy(ConnectError) // through a tunnel it would be the site's answer
	case resp.StatusCode == http.StatusTooManyRequests:
		return Outcome{Report{RateLimited, site, after}, true, true}
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusUnavailableForLegalReasons:
		return Outcome{Report{Banned, site, after}, true, true}
	case resp.StatusCode < http.StatusBadRequest:
		return Outcome{Report: Report{Result: OK, Target: site}}
	}
	return Outcome{}
}

// ofProxy is the outcome of a failure of the proxy, whatever the site.
func ofProxy(r Result) Outcome { return Outcome{Report{Result: r}, true, true} }

// ofError is the outcome of an error for a site; answered: a response had begun.
func ofError(err error, site string, answered bool) Outcome {
	if errors.Is(err, ErrReleased) || errors.Is(err, ErrLost) {
		return Outcome{ChangeProxy: true, Retry: true}
	}
	if errors.Is(err, context.Canceled) || ofRedirect(err, answered) {
		return Outcome{} // the caller gave the request up, or the site sends it nowhere
	}
	failed := failureOf(err)
	switch {
	case failed.Stage == StageRequest:
		return Outcome{}
	case failed.Stage == StageTunnel && isCertificate(err):
		return Outcome{}
	case failed.Stage == StageTunnel && timedOut(err):
		return Outcome{Report{Result: TargetTimeout, Target: site}, true, true}
	case failed.Stage == StageTunnel:
		return Outcome{ChangeProxy: true, Retry: true}
	case failed.Status != 0 && failed.Status != http.StatusProxyAuthRequired:
		return Outcome{Report{Result: TargetUnreachable, Target: site}, true, true}
	case failed.Status == 0 && timedOut(err):
		return ofProxy(ProxyTimeout)
	}
	return ofProxy(ConnectError)
}

// ofRedirect reports whether http.Client made err of a site's redirect: too many of them,
// or a Location that is no URL. Errors of transports come without a response.
func ofRedirect(err error, answered bool) bool {
	u, ok := errors.AsType[*url.Error](err)
	return ok && (answered || strings.HasPrefix(u.Err.Error(), "failed to parse Location header"))
}

// failureOf returns the ProxyError of err. Without one, another transport made err, or it
// came while the body was read: a net.OpError shows whether the connection to the proxy
// failed. All else may be the site's doing.
func failureOf(err error) *ProxyError {
	if p, ok := errors.AsType[*ProxyError](err); ok {
		return p
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		for _, stage := range []Stage{StageRequest, StageDial, StageConnect, StageTunnel} {
			// http.Client.Timeout replaces the error and keeps its text.
			if strings.HasPrefix(u.Err.Error(), stage.prefix()) {
				return &ProxyError{Stage: stage, Err: err}
			}
		}
	}
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case ok && (op.Op == "dial" || op.Op == "proxyconnect"):
		return &ProxyError{Stage: StageDial, Err: err}
	case strings.HasSuffix(err.Error(), http.StatusText(http.StatusProxyAuthRequired)):
		return &ProxyError{Stage: StageConnect, Err: err}
	}
	return &ProxyError{Stage: StageTunnel, Err: err}
}

func siteOf(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if parsed, parseErr := url.Parse(u.URL); parseErr == nil {
			return parsed.Hostname()
		}
	}
	return ""
}

func timedOut(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// isCertificate reports whether the site's certificate was not trusted.
func isCertificate(err error) bool {
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	return verification || unknown || name
}
