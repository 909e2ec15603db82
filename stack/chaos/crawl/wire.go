package crawl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// patience is for how long a crawler waits for an answer, besides what it asked
// discovery to wait for.
const patience = 12 * time.Second

// request is one call before it is made.
type request struct {
	method, path string
	header       map[string]string
	body         any // nil: none
}

// answer is what the bodies of answers have that records keep.
type answer struct {
	LeaseID string `json:"leaseID"`
	Proxy   struct {
		Name, Namespace, Host string
		Port                  int
	} `json:"proxy"`
	ProxyURL     string    `json:"proxyURL"`
	ExpiresAt    time.Time `json:"expiresAt"`
	TTLSeconds   int64     `json:"ttlSeconds"`
	FencingToken uint64    `json:"fencingToken"`

	Count *int `json:"count"`

	Error      string `json:"error"`
	Reason     string `json:"reason"`
	Detail     string `json:"detail"`
	Considered *int   `json:"considered"`
	AtCapacity int    `json:"atCapacity"`
	InCooldown int    `json:"inCooldown"`
	Unhealthy  int    `json:"unhealthy"`
	Stale      int    `json:"stale"`
	NotReady   int    `json:"notReady"`
	Disabled   int    `json:"disabled"`
	Excluded   int    `json:"excluded"`
}

// call makes a call, and records it with what came of it. Calls that ctx cut
// short are recorded, too: they may have been done.
func (c *crawler) call(ctx context.Context, at Replica, r request, rec *history.Call) (answer, http.Header) {
	if c.pace.Wait(ctx) != nil {
		rec.Failure = history.Refused // nothing was sent, and nothing is recorded
		return answer{}, nil
	}
	rec.Domain, rec.Replica, rec.Crawler = c.cfg.Domain, at.Name, c.name
	rec.Asked = c.cfg.Recorder.Now()
	rec.At = rec.Asked
	a, header, err := c.exchange(ctx, at, r, rec)
	rec.Answered = c.cfg.Recorder.Now()
	if err != nil {
		rec.Status, rec.Failure, rec.Detail = 0, failureOf(err), err.Error()
	}
	c.cfg.Recorder.Add(history.Record{Call: new(*rec)})
	return a, header
}

func (c *crawler) exchange(ctx context.Context, at Replica, r request, rec *history.Call) (answer, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, patience+rec.Wait)
	defer cancel()
	var body io.Reader
	if r.body != nil {
		encoded, err := json.Marshal(r.body)
		if err != nil {
			return answer{}, nil, err
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, at.URL+r.path, body)
	if err != nil {
		return answer{}, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return answer{}, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return answer{}, nil, err
	}
	a, err := c.understand(resp, raw, rec)
	return a, resp.Header, err
}

// understand keeps what the answer says in the record.
func (c *crawler) understand(resp *http.Response, raw []byte, rec *history.Call) (answer, error) {
	var a answer
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &a); err != nil {
			return answer{}, &oddError{fmt.Errorf("status %d with a body that is no JSON: %w", resp.StatusCode, err)}
		}
	}
	rec.Status, rec.RetryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
	rec.Code, rec.Reason, rec.Detail = a.Error, a.Reason, a.Detail
	if a.LeaseID != "" {
		rec.LeaseID, rec.FencingToken = a.LeaseID, a.FencingToken
		rec.Proxy = a.Proxy.Namespace + "/" + a.Proxy.Name
		if a.Proxy.Host != "" {
			rec.Endpoint = net.JoinHostPort(a.Proxy.Host, strconv.Itoa(a.Proxy.Port))
		}
		rec.ExpiresAt = c.cfg.Recorder.Offset(a.ExpiresAt)
	}
	if a.Count != nil {
		rec.Listed = *a.Count
	}
	if a.Considered != nil {
		rec.Counts = map[string]int{
			"considered": *a.Considered, "atCapacity": a.AtCapacity, "inCooldown": a.InCooldown, "unhealthy": a.Unhealthy,
			"stale": a.Stale, "notReady": a.NotReady, "disabled": a.Disabled, "excluded": a.Excluded,
		}
	}
	return a, nil
}

// oddError is an answer that makes no sense.
type oddError struct{ err error }

func (e *oddError) Error() string { return e.err.Error() }
func (e *oddError) Unwrap() error { return e.err }

func failureOf(err error) history.Failure {
	var odd *oddError
	var network net.Error
	switch {
	case errors.As(err, &odd):
		return history.Odd
	case errors.Is(err, syscall.ECONNREFUSED):
		return history.Refused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return history.Timeout
	}
	return history.Broken
}
