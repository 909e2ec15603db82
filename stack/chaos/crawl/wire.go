package crawl

import (
	"bytes"
	"context"
	"crypto/tls"
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

const (
	callTimeout  = 12 * time.Second // for one response, besides the wait that was requested
	crawlTimeout = 5 * time.Second  // for one page
)

// request is one request of the discovery API.
type request struct {
	method, path string
	header       map[string]string // empty values are not sent
	body         any               // nil: none
}

// answer is the fields of response bodies that records keep.
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

// call sends a request and records it with its response. Requests that ctx cancelled
// are recorded too: discovery may have handled them.
func (c *crawler) call(ctx context.Context, at Replica, r request, rec *history.Call) (answer, http.Header) {
	if c.pace.Wait(ctx) != nil {
		rec.Failure = history.Refused // nothing was sent or recorded
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
	ctx, cancel := context.WithTimeout(ctx, callTimeout+rec.Wait)
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
		if value != "" {
			req.Header.Set(name, value)
		}
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
	a, err := c.decode(resp, raw, rec)
	return a, resp.Header, err
}

// decode copies the response into the record.
func (c *crawler) decode(resp *http.Response, raw []byte, rec *history.Call) (answer, error) {
	var a answer
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &a); err != nil {
			return answer{}, fmt.Errorf("%w: status %d with a body that is not JSON: %w", errOdd, resp.StatusCode, err)
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

// errOdd is a malformed response.
var errOdd = errors.New("not the API's format")

func failureOf(err error) history.Failure {
	var network net.Error
	switch {
	case errors.Is(err, errOdd):
		return history.Odd
	case errors.Is(err, syscall.ECONNREFUSED):
		return history.Refused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return history.Timeout
	}
	return history.Broken
}

// through requests a page through the proxy of a lease, and returns the result to
// report.
func (c *crawler) through(ctx context.Context, l *held) (result string) {
	rec := history.Crawl{
		Domain: c.cfg.Domain, Crawler: c.name, LeaseID: l.id, Proxy: l.proxy, Endpoint: l.endpoint, Asked: c.cfg.Recorder.Now(),
	}
	rec.At = rec.Asked
	status, err := c.fetch(ctx, l)
	rec.Answered = c.cfg.Recorder.Now()
	rec.Status, rec.OK = status, err == nil && status == http.StatusNoContent
	if err != nil {
		rec.Failure, rec.Detail = failureOf(err), err.Error()
	}
	if ctx.Err() == nil { // otherwise the crawler cancelled it
		c.cfg.Recorder.Add(history.Record{Crawl: &rec})
	}
	switch {
	case rec.OK:
		return "ok"
	case rec.Failure == history.Timeout:
		return "proxy_timeout"
	}
	return "connect_error"
}

func (c *crawler) fetch(ctx context.Context, l *held) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, crawlTimeout)
	defer cancel()
	transport := &http.Transport{
		Proxy:             http.ProxyURL(l.proxyURL),
		TLSClientConfig:   &tls.Config{RootCAs: c.cfg.TargetCA, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.TargetURL+"/generate_204", nil)
	if err != nil {
		return 0, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, fmt.Errorf("through %s: %w", l.endpoint, err)
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, err
}
