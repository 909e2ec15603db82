package client

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Want selects a proxy. The zero value selects any.
type Want struct {
	// Selector holds attributes that the proxy must have.
	Selector map[string]string
	// Target is the site that it is for: proxies in cooldown for this site are not
	// leased.
	Target string
	// TTL of the lease after each renewal, in whole seconds; 5 minutes when 0. The
	// client renews it at a third of it.
	TTL time.Duration
	// Session makes leases of one session go to one proxy.
	Session string
	// Exclude lists proxies, as "namespace/name", that must not be chosen.
	Exclude []string
	// Schemes of proxies that the caller can speak to, of http, https and socks5; all
	// of them when empty, as Lease.HTTPClient can.
	Schemes []string
	// Patience is how long to wait for a free proxy; a minute when 0, not at all when
	// negative. Acquire returns at once when no proxy can match.
	Patience time.Duration
	// WaitForMatch makes Acquire wait also while no proxy matches.
	WaitForMatch bool
	// OnLost is called once, from another goroutine, when the lease ends before it is
	// released. The error unwraps to ErrLost, and to the *APIError that caused it, if
	// any.
	OnLost func(l *Lease, err error)
}

// schemes of proxies that the caller can speak to.
func (w Want) schemes() []string {
	if len(w.Schemes) > 0 {
		return w.Schemes
	}
	return []string{"http", "https", "socks5"}
}

// acquireBody is the body of POST /v1/leases.
type acquireBody struct {
	Selector   map[string]string `json:"selector,omitempty"`
	Target     string            `json:"target,omitempty"`
	TTLSeconds int64             `json:"ttlSeconds"`
	Session    string            `json:"session,omitempty"`
	Exclude    []string          `json:"exclude,omitempty"`
	Schemes    []string          `json:"schemes,omitempty"`
	ForMatch   bool              `json:"waitForMatch,omitempty"`
	Wait       int64             `json:"wait,omitempty"`
}

// grant is the answer to it. A renewal has some of its members.
type grant struct {
	LeaseID      string    `json:"leaseID"`
	Proxy        Proxy     `json:"proxy"`
	ProxyURL     string    `json:"proxyURL"`
	ExpiresAt    time.Time `json:"expiresAt"`
	TTLSeconds   int64     `json:"ttlSeconds"`
	Target       string    `json:"target"`
	FencingToken uint64    `json:"fencingToken"`

	ProxyStatus *ProxyStatus `json:"proxyStatus"` // of a renewal
}

// ProxyStatus is what discovery knows of the proxy of a lease.
type ProxyStatus struct {
	// Verdict of the prober: Healthy, Unhealthy or Unknown.
	Verdict string `json:"verdict"`
	// Reason is one of docs/health.md.
	Reason string `json:"reason"`
	// Message for people.
	Message string `json:"message"`
	// Usable is false when the holder should change to another proxy.
	Usable bool `json:"usable"`
}

// maxTTLSeconds is a year: more may overflow a time.Duration, and a lease of
// negative length would be renewed without a pause.
const maxTTLSeconds = 366 * 24 * 60 * 60

// Proxy that a lease is on.
type Proxy struct {
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Host       string            `json:"host"`
	Port       int               `json:"port"`
	Attributes map[string]string `json:"attributes"`
}

// FullName is "namespace/name", as Want.Exclude takes it.
func (p Proxy) FullName() string { return p.Namespace + "/" + p.Name }

// Acquire leases a proxy, and waits for one up to Want.Patience. Release the lease
// when done. An error that unwraps to ErrNoProxy means that there was none; its
// *APIError has the details.
//
// Retries have the same Idempotency-Key, so that no proxy stays leased because an
// answer was lost.
func (c *Client) Acquire(ctx context.Context, w Want) (*Lease, error) {
	if w.TTL == 0 {
		w.TTL = defaultTTL
	}
	if w.Patience == 0 {
		w.Patience = defaultPatience
	}
	body := acquireBody{
		Selector: w.Selector, Target: w.Target, TTLSeconds: int64(w.TTL / time.Second),
		Session: w.Session, Exclude: w.Exclude, Schemes: w.Schemes, ForMatch: w.WaitForMatch,
	}
	deadline := time.Now().Add(w.Patience)
	key := crand.Text()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		wait := min(max(0, time.Until(deadline)), maxServerWait).Truncate(time.Second)
		body.Wait = int64(wait / time.Second)
		sent := time.Now()
		a, err := c.call(ctx, http.MethodPost, "/v1/leases", body, key, wait)
		if err == nil {
			l, err := c.newLease(a, sent, w)
			if err != nil {
				c.undo(ctx, body, key)
			}
			return l, err
		}
		again := retryable(err) || w.WaitForMatch && errors.Is(err, ErrNoProxy)
		if !again || !sleepUntil(ctx, acquirePause(err, try, wait > 0 && time.Since(sent) >= wait), deadline) {
			if unanswered(err) {
				c.undo(ctx, body, key)
			}
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// unanswered reports whether err may hide a grant: discovery has not answered, or an
// intermediary has in its place.
func unanswered(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return !ok || e.Status >= http.StatusInternalServerError
}

// undo ends the lease of an acquire that is given up: its grant may be on the way, or is of
// no use. The same key returns that grant. A lease that undo cannot end expires.
func (c *Client) undo(ctx context.Context, body acquireBody, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	body.Wait, body.ForMatch = 0, false
	var g grant
	a, err := c.call(ctx, http.MethodPost, "/v1/leases", body, key, 0)
	if err == nil && json.Unmarshal(a.body, &g) == nil && g.LeaseID != "" {
		_, _ = c.call(ctx, http.MethodDelete, leasePath(g.LeaseID), nil, "", 0)
	}
}

// acquirePause is the time before the next attempt. The Retry-After of a no_match is the
// latest time at which a proxy gets free, not the soonest: after a whole wait the next one
// begins at once, and after a shorter one, since too many wait, with backoff.
func acquirePause(err error, try int, waited bool) time.Duration {
	if !errors.Is(err, ErrNoProxy) {
		return pause(err, try)
	}
	if waited {
		return 0
	}
	return backoff(try)
}

// Use leases a proxy while f runs. The context of f ends when the lease is lost, with
// the reason as its cause. A failed release is ignored: the lease expires by itself.
func (c *Client) Use(ctx context.Context, w Want, f func(ctx context.Context, l *Lease) error) error {
	l, err := c.Acquire(ctx, w)
	if err != nil {
		return err
	}
	defer func() { _ = l.Release(context.WithoutCancel(ctx)) }()
	return f(l.during(ctx))
}

// pause is the time before a retry: the API's Retry-After, or exponential backoff.
func pause(err error, try int) time.Duration {
	var e *APIError
	if errors.As(err, &e) && e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return backoff(try)
}

// backoff grows exponentially to 5 seconds.
func backoff(try int) time.Duration {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	d := min(first<<min(try, 10), most)
	return d/2 + rand.N(d/2+1) // jitter, so that clients do not retry all at once
}

// sleepUntil sleeps for d. It returns false at once when that would pass the deadline,
// and when ctx ends.
func sleepUntil(ctx context.Context, d time.Duration, deadline time.Time) bool {
	if time.Now().Add(d).After(deadline) {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (c *Client) newLease(a answer, sent time.Time, w Want) (*Lease, error) {
	var g grant
	if err := json.Unmarshal(a.body, &g); err != nil {
		return nil, fmt.Errorf("read the grant: %w", err)
	}
	proxyURL, err := url.Parse(g.ProxyURL)
	if err != nil || g.LeaseID == "" || proxyURL.Host == "" || g.TTLSeconds <= 0 {
		return nil, errors.New("discovery's grant has no leaseID, no proxyURL or no ttlSeconds") // the URL may contain a password
	}
	if want := w.schemes(); !slices.Contains(want, proxyURL.Scheme) {
		return nil, fmt.Errorf("discovery granted a proxy of the scheme %q, want %s", proxyURL.Scheme, strings.Join(want, ", "))
	}
	g.TTLSeconds = min(g.TTLSeconds, maxTTLSeconds)
	return startLease(c, g, proxyURL, deadlineOf(g, a, sent), w), nil
}

// deadlineOf is the earliest time, by the client's clock, at which the lease expires.
// The API's clock may differ: expiresAt counts from the answer's Date, which is
// rounded down to seconds.
func deadlineOf(g grant, a answer, sent time.Time) time.Time {
	date, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return sent.Add(time.Duration(g.TTLSeconds) * time.Second)
	}
	return a.at.Add(g.ExpiresAt.Sub(date) - time.Second)
}
