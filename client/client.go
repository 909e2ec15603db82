// Package client leases proxies from the discovery API: one call returns a healthy
// proxy that is yours until you release it.
//
//	c, err := client.New(client.Config{URL: "http://discovery:8090", Token: token})
//	...
//	err = c.Use(ctx, client.Want{Target: "shop.example"}, func(ctx context.Context, l *client.Lease) error {
//		resp, err := l.HTTPClient().Get("https://shop.example/")
//		...
//	})
//
// A lease is renewed in the background until it is released. When it is lost, its
// context ends, its connections are closed, and Want.OnLost receives the reason. The
// package depends on the standard library alone.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Defaults of a Config and a Want.
const (
	defaultPatience = time.Minute
	defaultTTL      = 5 * time.Minute
	// maxServerWait is the longest wait that the API accepts.
	maxServerWait = 30 * time.Second
	// callTimeout bounds a call in addition to its wait.
	callTimeout = 10 * time.Second
	// maxRetryTime is how long reports and releases are retried: twice what a rollout
	// of a single replica of discovery takes.
	maxRetryTime = 20 * time.Second
	// maxAnswer is the largest answer in bytes; those about a lease are far smaller.
	maxAnswer = 1 << 20
)

// Config of a Client.
type Config struct {
	// URL of the discovery API, such as http://discovery:8090. Required.
	URL string
	// Token is the bearer token; "" when discovery needs none.
	Token string `json:"-"`
	// HTTPClient talks to discovery; nil for one that uses no proxy from the
	// environment.
	HTTPClient *http.Client
	// Transport is the template for connections through leased proxies: TLS,
	// timeouts, limits. Nil for http.DefaultTransport, or for an empty http.Transport
	// when the program has replaced that by another type. Its Proxy and dial
	// functions are not used.
	Transport *http.Transport
}

// Client of the discovery API. Its methods are safe for concurrent use.
type Client struct {
	base      *url.URL
	token     string
	http      *http.Client
	transport *http.Transport
}

// New checks cfg.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, errors.New("discovery URL: want http://host:port or https://host") // it may contain a password
	}
	c := &Client{base: base, token: cfg.Token, http: cfg.HTTPClient, transport: cfg.Transport}
	if c.http == nil {
		c.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}}
	}
	if c.transport == nil {
		c.transport, _ = http.DefaultTransport.(*http.Transport)
		c.transport = cmp.Or(c.transport, &http.Transport{})
	}
	return c, nil
}

// answer is an answer of the API.
type answer struct {
	status int
	header http.Header
	body   []byte
	at     time.Time // when the client had received it
}

// call sends one request and returns an *APIError for every status of 400 and above.
// It times out after wait plus callTimeout.
func (c *Client) call(ctx context.Context, method, path string, body any, key string, wait time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+callTimeout)
	defer cancel()
	req, err := c.request(ctx, method, path, body, key)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, withoutURL(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("read discovery's answer: %w", err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: text, at: time.Now()}
	if a.status >= http.StatusBadRequest {
		return a, newAPIError(a)
	}
	return a, nil
}

func (c *Client) request(ctx context.Context, method, path string, body any, key string) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(path).String(), reader)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return req, nil
}

// withoutURL removes the URL from an error of package http: it may contain a
// password.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("call discovery: %w", err)
}

// retryAfter parses the header Retry-After, which is in seconds or a date. It is 0 without
// one, and at most a day.
func retryAfter(h http.Header) time.Duration {
	const day = 24 * time.Hour
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(0, seconds), int(day/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date")) // by the same clock
	if err != nil {
		now = time.Now()
	}
	return min(max(0, at.Sub(now)), day)
}
