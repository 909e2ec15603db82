package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// leaseQuery are the parameters of GET /v1/leases.
type leaseQuery struct{ lease.Query }

// leaseParameters are their names.
var leaseParameters = []string{"cursor", "holder", "limit", "proxy", "session", "target"}

// parseLeaseQuery refuses unknown parameters, as parseListQuery does.
func parseLeaseQuery(raw string) (leaseQuery, error) {
	values, err := parseParameters(raw, leaseParameters, nil)
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
	if cursor, given := values["cursor"]; given { // last, since it depends on the filters
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

// filters are equal for queries that select the same leases.
func (q leaseQuery) filters() string {
	return fmt.Sprintf("%q %q %q %q", q.Proxy, q.Holder, q.Session, q.Target)
}

// cursorAfter returns the cursor of the page that starts after a lease. Fencing
// tokens are in the order of the grants.
func (q leaseQuery) cursorAfter(fence uint64) string {
	return newCursor(q.filters(), strconv.FormatUint(fence, 10))
}

// parseCursor returns the fencing token that the page starts after.
func (q leaseQuery) parseCursor(cursor string) (uint64, error) {
	after, err := openCursor(q.filters(), cursor)
	if err != nil {
		return 0, err
	}
	fence, err := strconv.ParseUint(after, 10, 64)
	if err != nil || fence == 0 {
		return 0, errBadCursor()
	}
	return fence, nil
}

// leaseListBody is the answer to GET /v1/leases.
type leaseListBody struct {
	Leases     []listedLease `json:"leases"`
	Count      int           `json:"count"`
	NextCursor string        `json:"nextCursor,omitempty"`
}

// listedLease is a lease as operators see it, without the secrets of its holder:
// credentials and the Idempotency-Key.
type listedLease struct {
	leaseBody
	InstanceID string          `json:"instanceID"`
	Holder     string          `json:"holder"`
	GrantedAt  time.Time       `json:"grantedAt"`
	Ended      lease.EndReason `json:"ended,omitempty"`
}

// listLeases lists the active leases, the oldest first.
func (s *Server) listLeases(r *http.Request) (httpapi.Response, error) {
	query, err := parseLeaseQuery(r.URL.RawQuery)
	if err != nil {
		return httpapi.Response{}, err
	}
	if err := s.syncStore(); err != nil {
		return httpapi.Response{}, err
	}
	page, err := s.leasePage(r.Context(), query.Query)
	if err != nil {
		return httpapi.Response{}, s.storeError(err)
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
	return httpapi.Response{Status: http.StatusOK, Body: body}, nil
}

// leasePage collects pages of the store until this one is full or there are no more
// leases: the store's pages may be short.
func (s *Server) leasePage(ctx context.Context, q lease.Query) (lease.Page, error) {
	var all lease.Page
	limit := q.Limit
	for {
		page, err := s.cfg.Store.List(ctx, q)
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
