package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// leaseQuery are the parameters of GET /v1/leases.
type leaseQuery struct{ lease.Query }

// leaseParameters are those that it takes.
func leaseParameters() []string {
	return []string{"cursor", "holder", "limit", "proxy", "session", "target"}
}

// parseLeaseQuery refuses what it does not know: a filter that is misspelt and
// ignored would list leases that nobody asked for.
func parseLeaseQuery(raw string) (leaseQuery, error) {
	values, err := parseParameters(raw, leaseParameters())
	if err != nil {
		return leaseQuery{}, err
	}
	q := leaseQuery{lease.Query{
		Proxy: values["proxy"], Holder: values["holder"], Session: values["session"], Limit: maxLimit,
	}}
	for name, value := range values {
		if value == "" {
			return leaseQuery{}, failf(codeInvalidQuery, "%s is empty; give it a value, or leave it out for any", name)
		}
	}
	if text, given := values["limit"]; given {
		if q.Limit, err = parseNumber("limit", text, 1, maxLimit); err != nil {
			return leaseQuery{}, err
		}
	}
	if q.Proxy != "" && !isProxyName(q.Proxy) {
		return leaseQuery{}, failf(codeInvalidQuery, `proxy=%s names no proxy; want "namespace/name"`, clip(q.Proxy))
	}
	if q.Target, err = targetParameter(values["target"]); err != nil {
		return leaseQuery{}, err
	}
	if cursor, given := values["cursor"]; given { // last, since it depends on all others
		q.After, err = q.parseCursor(cursor)
	}
	return q, err
}

// targetParameter is normalizeTarget for queries.
func targetParameter(raw string) (string, error) {
	target, err := normalizeTarget(raw)
	if err != nil {
		return "", failf(codeInvalidQuery, "%s", classify(err).detail)
	}
	return target, nil
}

// filters names what the list is filtered by, as cursors do.
func (q leaseQuery) filters() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", q.Proxy, q.Holder, q.Session, q.Target))
	return hex.EncodeToString(sum[:6])
}

// cursorAfter returns the cursor of the page that starts after a lease: those that
// come later have larger fencing tokens.
func (q leaseQuery) cursorAfter(fence uint64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %s %d", cursorVersion, q.filters(), fence))
}

// parseCursor returns the fencing token that the page starts after.
func (q leaseQuery) parseCursor(cursor string) (uint64, error) {
	bad := failf(codeInvalidQuery, "cursor: it is not one that a list gave out; start without a cursor")
	if len(cursor) > maxCursor {
		return 0, bad
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, bad
	}
	parts := strings.Split(string(text), " ")
	if len(parts) != 3 || parts[0] != cursorVersion {
		return 0, bad
	}
	fence, err := strconv.ParseUint(parts[2], 10, 64)
	switch {
	case err != nil || fence == 0:
		return 0, bad
	case parts[1] != q.filters():
		return 0, failf(codeInvalidQuery, "cursor: it belongs to a list with other filters; keep them from page to page, or start without a cursor")
	}
	return fence, nil
}

// leaseListBody is the answer to GET /v1/leases.
type leaseListBody struct {
	Leases     []listedLease `json:"leases"`
	Count      int           `json:"count"`
	NextCursor string        `json:"nextCursor,omitempty"`
}

// listedLease is a lease as operators see it. It has nothing that its holder keeps
// secret: no credentials, and no Idempotency-Key.
type listedLease struct {
	leaseBody
	InstanceID string          `json:"instanceID"`
	Holder     string          `json:"holder"`
	GrantedAt  time.Time       `json:"grantedAt"`
	Ended      lease.EndReason `json:"ended,omitempty"`
}

// listLeases answers with the leases that run, the oldest first.
func (s *Server) listLeases(r *http.Request) (response, error) {
	query, err := parseLeaseQuery(r.URL.RawQuery)
	if err != nil {
		return response{}, err
	}
	if err := s.tellFleet(); err != nil {
		return response{}, err
	}
	page, err := s.leasePage(r.Context(), query.Query)
	if err != nil {
		return response{}, s.storeError(err)
	}
	body := leaseListBody{Leases: make([]listedLease, 0, len(page.Leases)), Count: len(page.Leases)}
	for _, l := range page.Leases {
		body.Leases = append(body.Leases, listedLease{
			leaseBody: newLeaseBody(l, s.findLeased(l)), InstanceID: l.Instance.ID,
			Holder: l.Holder, GrantedAt: roundDown(l.GrantedAt), Ended: l.Ended,
		})
	}
	if page.Next > 0 {
		body.NextCursor = query.cursorAfter(page.Next)
	}
	return response{status: http.StatusOK, body: body}, nil
}

// leasePage asks the store on until the page is full or there are no more: of
// each part of its leases only some may match.
func (s *Server) leasePage(ctx context.Context, q lease.Query) (lease.Page, error) {
	var all lease.Page
	limit := q.Limit
	for {
		page, err := s.store.List(ctx, q)
		if err != nil {
			return lease.Page{}, err
		}
		all.Leases = append(all.Leases, page.Leases...)
		all.Next = page.Next
		if q.After, q.Limit = page.Next, limit-len(all.Leases); page.Next == 0 || q.Limit == 0 {
			return all, nil
		}
	}
}
