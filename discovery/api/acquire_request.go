package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Bounds of a request for a lease.
const (
	maxWait     = 30 * time.Second
	maxSession  = 128
	maxKey      = 255
	maxExcluded = 64
	// maxProxyName is that of "namespace/name".
	maxProxyName = 63 + 1 + 253
	// maxTargetInput and maxTargetHost bound a target, as sent and as kept.
	maxTargetInput = 2048
	maxTargetHost  = 253
)

// keyHeader makes a POST idempotent (draft-ietf-httpapi-idempotency-key-header).
// The draft wants a quoted string; any text is accepted, quotes and all.
const keyHeader = "Idempotency-Key"

// acquireRequest is a validated request for a lease.
type acquireRequest struct {
	lease.Request
	// wait is how long the client waits for a proxy to become free.
	wait time.Duration
	// waitForMatch: it also waits for a proxy that matches.
	waitForMatch bool
}

// acquireBody is the body of POST /v1/leases.
type acquireBody struct {
	Selector     map[string]*string `json:"selector"`
	TTLSeconds   wholeNumber        `json:"ttlSeconds"`
	Target       string             `json:"target"`
	Wait         wholeNumber        `json:"wait"`
	WaitForMatch bool               `json:"waitForMatch"`
	Session      string             `json:"session"`
	Exclude      []*string          `json:"exclude"`
	Schemes      []*string          `json:"schemes"`
}

func (s *Server) decodeAcquire(r *http.Request) (req acquireRequest, err error) {
	var body acquireBody
	if err := decodeBody(r, &body); err != nil {
		return req, err
	}
	req.Session, req.Holder, req.Key = body.Session, holderName(r), r.Header.Get(keyHeader)
	req.waitForMatch = body.WaitForMatch
	if req.Selector, err = stringMap("selector", body.Selector); err != nil {
		return req, err
	}
	if req.Exclude, err = stringList("exclude", body.Exclude); err != nil {
		return req, err
	}
	if req.Schemes, err = schemeList(body.Schemes); err != nil {
		return req, err
	}
	if req.TTL, err = s.leaseTTL(body.TTLSeconds); err != nil {
		return req, err
	}
	if req.wait, err = waitTime(body.Wait); err != nil {
		return req, err
	}
	if req.Target, err = normalizeTarget(body.Target); err != nil {
		return req, err
	}
	if req.Key != "" {
		req.Fingerprint = fingerprint(req.Request)
	}
	return req, checkRequest(req.Request)
}

// schemes that a client can list. One without proxies is no error: the same client may
// talk to several fleets.
var schemes = []string{"http", "https", "socks5"}

// schemeList returns the schemes sorted and each once, so that lists of the same schemes
// are the same request.
func schemeList(in []*string) ([]string, error) {
	list, err := stringList("schemes", in)
	if err != nil {
		return nil, err
	}
	for _, scheme := range list {
		if !slices.Contains(schemes, scheme) {
			return nil, failf(codeInvalidRequest, "schemes: %q is not known; want any of %s, or leave it out for all", clip(scheme), strings.Join(schemes, ", "))
		}
	}
	if in != nil && len(list) == 0 {
		return nil, failf(codeInvalidRequest, "schemes is empty; want any of %s, or leave it out for all", strings.Join(schemes, ", "))
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// leaseTTL refuses a TTL above the maximum instead of clamping it: a client that
// asks for a week should learn that the lease would expire before.
func (s *Server) leaseTTL(seconds wholeNumber) (time.Duration, error) {
	most := int64(s.cfg.MaxLeaseTTL / time.Second)
	switch {
	case !seconds.given():
		return min(defaultLeaseTTL, time.Duration(most)*time.Second), nil
	case seconds.value < 1:
		return 0, failf(codeInvalidTTL, "ttlSeconds is %s; want 1 to %d", clip(seconds.text), most)
	case seconds.value > most:
		return 0, failf(codeInvalidTTL, "ttlSeconds is %s; the maximum is %d", clip(seconds.text), most)
	}
	return time.Duration(seconds.value) * time.Second, nil
}

func waitTime(seconds wholeNumber) (time.Duration, error) {
	const most = int64(maxWait / time.Second)
	if seconds.value < 0 || seconds.value > most {
		return 0, failf(codeInvalidRequest, "wait is %s; want a number of seconds, 0 to %d", clip(seconds.text), most)
	}
	return time.Duration(seconds.value) * time.Second, nil
}

func checkRequest(req lease.Request) error {
	if err := checkSelector(codeInvalidRequest, req.Selector); err != nil {
		return err
	}
	switch {
	case len(req.Session) > maxSession:
		return failf(codeInvalidRequest, "session has %d bytes; at most %d are allowed", len(req.Session), maxSession)
	case len(req.Key) > maxKey:
		return failf(codeInvalidRequest, "the header %s has %d bytes; at most %d are allowed", keyHeader, len(req.Key), maxKey)
	case strings.ContainsFunc(req.Session, unprintable) || strings.ContainsFunc(req.Key, unprintable):
		return failf(codeInvalidRequest, "session and the header %s take visible ASCII and spaces", keyHeader)
	case len(req.Exclude) > maxExcluded:
		return failf(codeInvalidRequest, "exclude has %d entries; at most %d are allowed", len(req.Exclude), maxExcluded)
	}
	for _, name := range req.Exclude {
		if !isProxyName(name) {
			return failf(codeInvalidRequest, `exclude: %q names no proxy; want "namespace/name"`, clip(name))
		}
	}
	return nil
}

// isProxyName reports whether a text has the form "namespace/name".
func isProxyName(text string) bool {
	namespace, name, ok := strings.Cut(text, "/")
	return ok && namespace != "" && name != "" && !strings.Contains(name, "/") && len(text) <= maxProxyName
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// fingerprint is a digest of everything but wait and waitForMatch: a retry waits for the
// rest of the time only.
func fingerprint(req lease.Request) string {
	// Strings, numbers, and maps and lists of strings always encode; map keys are
	// sorted.
	text, _ := json.Marshal([]any{req.Selector, req.Exclude, req.Target, req.TTL, req.Session, req.Schemes})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// normalizeTarget returns the key of a target's cooldowns: the lower-case host name
// or IP address alone. Of a URL or host:port it takes the host, so that all pages,
// schemes and ports of a site share their cooldowns; a trailing dot is dropped. ""
// stays "", for any target. Errors do not repeat the target, which may contain a
// password.
func normalizeTarget(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	if len(raw) > maxTargetInput {
		return "", failf(codeInvalidRequest, "target has %d bytes; at most %d are allowed", len(raw), maxTargetInput)
	}
	host := strings.ToLower(strings.TrimRight(hostOf(strings.TrimSpace(raw)), "."))
	switch {
	case host == "":
		return "", failf(codeInvalidRequest, "target names no host; want a host name, an IP address or a URL, such as example.com")
	case len(host) > maxTargetHost:
		return "", failf(codeInvalidRequest, "target's host has %d characters; host names have at most %d", len(host), maxTargetHost)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().WithZone("").String(), nil
	}
	if strings.ContainsFunc(host, notInHost) {
		return "", failf(codeInvalidRequest, "target's host has characters that host names do not; use letters, digits, '.', '-' and '_', and the xn-- form of international names")
	}
	return host, nil
}

// hostOf returns the host of a URL, host:port, host/path or plain host; "" when
// there is none.
func hostOf(raw string) string {
	if _, err := netip.ParseAddr(raw); err == nil {
		return raw // the colons of an IPv6 address are no port
	}
	if !strings.Contains(raw, "://") {
		raw = "//" + strings.TrimPrefix(raw, "//")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func notInHost(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
}
