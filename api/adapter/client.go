package adapter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// MaxAnswerBytes is how much of a response to PUT and DELETE is read.
const MaxAnswerBytes = 1 << 20

// maxListBytes is how much of a response to GET is read: 100,000 instances of 600
// bytes.
const maxListBytes = 64 << 20

// Client calls an adapter over its unix socket. It is safe for concurrent use.
type Client struct {
	http *http.Client
}

// NewClient returns a client of the adapter that listens on the path socket. It
// does not connect yet. timeout bounds each call as a whole; the adapter responds
// from its cache, so that a few seconds are enough.
func NewClient(socket string, timeout time.Duration) *Client {
	dialer := &net.Dialer{}
	return &Client{http: &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			},
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true,
		},
	}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Put sets which instance is desired and returns the observed one. Errors unwrap to
// one of the classes of this package; after ErrNotReady and ErrUnavailable the
// instance's state is unknown.
func (c *Client) Put(ctx context.Context, provider, name string, req PutRequest) (Instance, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return Instance{}, fmt.Errorf("encode request for instance %s: %w", name, err)
	}
	return c.instance(ctx, http.MethodPut, instancePath(provider, name), body)
}

// Delete sets that no instance with this UID is desired and returns the observed
// one. Only StateAbsent confirms the deletion. providerID is its last known location,
// or empty. Errors are those of Put.
func (c *Client) Delete(ctx context.Context, provider, name, uid, providerID string) (Instance, error) {
	query := url.Values{"uid": {uid}}
	if providerID != "" {
		query.Set("providerID", providerID)
	}
	return c.instance(ctx, http.MethodDelete, instancePath(provider, name)+"?"+query.Encode(), nil)
}

// List returns the adapter's whole cache. Errors are those of Put.
func (c *Client) List(ctx context.Context) (List, error) {
	var list List
	err := c.call(ctx, http.MethodGet, "/v1/instances", nil, maxListBytes, &list)
	return list, err
}

func instancePath(provider, name string) string {
	return "/v1/instances/" + url.PathEscape(provider) + "/" + url.PathEscape(name)
}

var states = []State{StateAbsent, StateProvisioning, StateRunning, StateStopping, StateStopped}

func (c *Client) instance(ctx context.Context, method, path string, body []byte) (Instance, error) {
	var got Instance
	if err := c.call(ctx, method, path, body, MaxAnswerBytes, &got); err != nil {
		return Instance{}, err
	}
	if !slices.Contains(states, got.State) {
		return Instance{}, fmt.Errorf("%w: its response has the unknown state %q", ErrUnavailable, got.State)
	}
	return got, nil
}

func (c *Client) call(ctx context.Context, method, path string, body []byte, limit int64, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://cloud-adapter"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: read its response: %w", ErrUnavailable, err)
	case int64(len(answer)) > limit:
		return fmt.Errorf("%w: its response exceeds %d bytes", ErrUnavailable, limit)
	case resp.StatusCode != http.StatusOK:
		return statusError(resp, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%w: its response cannot be decoded: %w", ErrUnavailable, err)
	}
	return nil
}

func statusError(resp *http.Response, answer []byte) error {
	e := &StatusError{Status: resp.StatusCode}
	if err := json.Unmarshal(answer, &e.Body); err != nil {
		return fmt.Errorf("%w: %s without an error body", ErrUnavailable, resp.Status)
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		const day = 24 * 60 * 60
		e.RetryAfter = time.Duration(min(seconds, day)) * time.Second // a larger value could overflow
	}
	return e
}
