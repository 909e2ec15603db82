package crawl

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// want is a lease request.
type want struct {
	selector     map[string]string
	target       string
	session, key string
	exclude      []string
	ttl, wait    time.Duration
}

// held is a lease of a crawler.
type held struct {
	id, proxy, endpoint string
	proxyURL            *url.URL
	target              string
	ttl                 time.Duration
	expiresAt           time.Duration
}

// acquireBody is the body of POST /v1/leases, and with the TTL alone of a renewal.
type acquireBody struct {
	Selector   map[string]string `json:"selector,omitempty"`
	Target     string            `json:"target,omitempty"`
	TTLSeconds int64             `json:"ttlSeconds"`
	Session    string            `json:"session,omitempty"`
	Exclude    []string          `json:"exclude,omitempty"`
	Wait       int64             `json:"wait,omitempty"`
}

// acquire sends one request. It returns nil unless the response grants a lease.
func (c *crawler) acquire(ctx context.Context, at Replica, w want) (*held, history.Call) {
	rec := history.Call{
		Kind: history.Acquire, Key: w.key, Session: w.session, Selector: w.selector, Target: w.target, TTL: w.ttl, Wait: w.wait,
		Excluded: len(w.exclude),
	}
	r := request{method: http.MethodPost, path: "/v1/leases", header: map[string]string{"Idempotency-Key": w.key}, body: acquireBody{
		Selector: w.selector, Target: w.target, TTLSeconds: int64(w.ttl / c.cfg.second), Session: w.session,
		Exclude: w.exclude, Wait: int64(w.wait / c.cfg.second),
	}}
	a, _ := c.call(ctx, at, r, &rec)
	if rec.Status != http.StatusCreated {
		return nil, rec
	}
	c.used.add(rec.Proxy)
	through, err := url.Parse(a.ProxyURL)
	if err != nil {
		return nil, rec
	}
	return &held{
		id: a.LeaseID, proxy: rec.Proxy, endpoint: rec.Endpoint, proxyURL: through, target: w.target,
		ttl: w.ttl, expiresAt: rec.ExpiresAt,
	}, rec
}

func (c *crawler) renew(ctx context.Context, at Replica, l *held) history.Call {
	rec := history.Call{Kind: history.Renew, LeaseID: l.id, TTL: l.ttl}
	body := acquireBody{TTLSeconds: int64(l.ttl / c.cfg.second)}
	c.call(ctx, at, request{method: http.MethodPost, path: "/v1/leases/" + l.id + "/renew", body: body}, &rec)
	if rec.Status == http.StatusOK {
		l.expiresAt = rec.ExpiresAt
	}
	return rec
}

func (c *crawler) get(ctx context.Context, at Replica, l *held) history.Call {
	rec := history.Call{Kind: history.Get, LeaseID: l.id}
	c.call(ctx, at, request{method: http.MethodGet, path: "/v1/leases/" + l.id}, &rec)
	return rec
}

func (c *crawler) release(ctx context.Context, at Replica, l *held) history.Call {
	rec := history.Call{Kind: history.Release, LeaseID: l.id}
	c.call(ctx, at, request{method: http.MethodDelete, path: "/v1/leases/" + l.id}, &rec)
	return rec
}

func (c *crawler) report(ctx context.Context, at Replica, l *held, result string) history.Call {
	rec := history.Call{Kind: history.Report, LeaseID: l.id, Result: result, Target: l.target}
	body := struct {
		Result string `json:"result"`
		Target string `json:"target,omitempty"`
	}{result, l.target}
	c.call(ctx, at, request{method: http.MethodPost, path: "/v1/leases/" + l.id + "/report", body: body}, &rec)
	return rec
}

// list reads the list; a later call can wait for a change.
func (c *crawler) list(ctx context.Context, at Replica, wait time.Duration) {
	rec := history.Call{Kind: history.List}
	r := request{method: http.MethodGet, path: "/v1/proxies", header: map[string]string{}}
	if c.etag != "" && wait > 0 {
		rec.Wait = wait
		r.path += "?wait=" + strconv.Itoa(int(wait/c.cfg.second))
		r.header["If-None-Match"] = c.etag
	}
	if _, header := c.call(ctx, at, r, &rec); header.Get("ETag") != "" {
		c.etag = header.Get("ETag")
	}
}
