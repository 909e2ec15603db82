package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Bounds of what a request for a lease may hold.
const (
	maxWait     = 30 * time.Second
	maxSession  = 128
	maxKey      = 255
	maxExcluded = 64
	// maxProxyName is that of "namespace/name".
	maxProxyName = 63 + 1 + 253
)

// keyHeader makes a POST repeatable (draft-ietf-httpapi-idempotency-key-header).
// The draft wants a quoted string; any text is taken, quotes and all.
const keyHeader = "Idempotency-Key"

// acquireRequest is the checked form of a request for a lease.
type acquireRequest struct {
	lease.Request
	// wait is for how long to wait for a proxy to become free.
	wait time.Duration
}

func (s *Server) decodeAcquire(r *http.Request) (acquireRequest, error) {
	var (
		wanted           selector
		ttlSeconds, wait wholeNumber
		target, session  string
		exclude          names
	)
	if err := decodeBody(r, fields{
		"selector": &wanted, "ttlSeconds": &ttlSeconds, "target": &target, "wait": &wait, "session": &session, "exclude": &exclude,
	}); err != nil {
		return acquireRequest{}, err
	}
	req := acquireRequest{Request: lease.Request{
		Selector: wanted, Exclude: exclude, Session: session, Holder: holderName(r), Key: r.Header.Get(keyHeader),
	}}
	var err error
	if req.TTL, err = s.leaseTTL(ttlSeconds); err != nil {
		return acquireRequest{}, err
	}
	if req.wait, err = waitTime(codeInvalidRequest, wait); err != nil {
		return acquireRequest{}, err
	}
	if req.Target, err = normalizeTarget(target); err != nil {
		return acquireRequest{}, err
	}
	if err := checkWanted(req.Request); err != nil {
		return acquireRequest{}, err
	}
	if req.Key != "" {
		req.Fingerprint = fingerprint(req.Request)
	}
	return req, nil
}

// leaseTTL refuses a TTL above the maximum instead of cutting it: who asks for
// a week should learn that it will not last.
func (s *Server) leaseTTL(seconds wholeNumber) (time.Duration, error) {
	most := int64(s.maxTTL / time.Second)
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

func waitTime(c code, seconds wholeNumber) (time.Duration, error) {
	const most = int64(maxWait / time.Second)
	if seconds.value < 0 || seconds.value > most {
		return 0, failf(c, "wait is %s; want a number of seconds, 0 to %d", clip(seconds.text), most)
	}
	return time.Duration(seconds.value) * time.Second, nil
}

func checkWanted(req lease.Request) error {
	if err := checkSelector(codeInvalidRequest, req.Selector); err != nil {
		return err
	}
	switch {
	case len(req.Session) > maxSession:
		return failf(codeInvalidRequest, "session has %d bytes; at most %d are taken", len(req.Session), maxSession)
	case len(req.Key) > maxKey:
		return failf(codeInvalidRequest, "the header %s has %d bytes; at most %d are taken", keyHeader, len(req.Key), maxKey)
	case strings.ContainsFunc(req.Session, unprintable) || strings.ContainsFunc(req.Key, unprintable):
		return failf(codeInvalidRequest, "session and the header %s take visible ASCII and spaces", keyHeader)
	case len(req.Exclude) > maxExcluded:
		return failf(codeInvalidRequest, "exclude has %d entries; at most %d are taken", len(req.Exclude), maxExcluded)
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

// fingerprint is the same for requests that ask for the same. For how long they
// are ready to wait makes no difference: who tries again waits for the rest.
func fingerprint(req lease.Request) string {
	// Strings, numbers, and maps and lists of strings always encode, maps in
	// the order of their keys.
	text, _ := json.Marshal([]any{req.Selector, req.Exclude, req.Target, req.TTL, req.Session})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
