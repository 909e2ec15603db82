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

// MaxAnswerBytes is how much of an answer to PUT and DELETE is read.
const MaxAnswerBytes = 1 << 20

// maxListBytes is how much of an answer to GET is read: 100,000 instances of
// 600 bytes.
const maxListBytes = 64 << 20

// Client talks to an adapter over its unix socket. It is safe for use by any
// number of goroutines.
type Client struct {
	http *http.Client
}

// NewClient returns a client of the adapter that listens on socket, a path.
// Nothing is dialled yet. timeout bounds each call as a whole; the adapter
// answers from memory, so that seconds mean that it is not there.
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

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Put says which instance should be and returns what is. Errors unwrap to one
// of the classes of this package; after ErrNotReady and ErrUnavailable nothing
// is known.
func (c *Client) Put(ctx context.Context, provider, name string, req PutRequest) (Instance, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return Instance{}, fmt.Errorf("encode request for instance %s: %w", name, err)
	}
	return c.instance(ctx, http.MethodPut, instancePath(provider, name), body)
}

// Delete says that no instance with this UID should be and returns what is. Only
// StateAbsent means that it is gone. providerID is where it was last known to
// be, empty when nothing is known. Errors are those of Put.
func (c *Client) Delete(ctx context.Context, provider, name, uid, providerID string) (Instance, error) {
	query := url.Values{"uid": {uid}}
	if providerID != "" {
		query.Set("providerID", providerID)
	}
	return c.instance(ctx, http.MethodDelete, instancePath(provider, name)+"?"+query.Encode(), nil)
}

// List returns everything that the adapter knows. Errors are those of Put.
func (c *Client) List(ctx context.Context) (List, error) {
	var list List
	err := c.call(ctx, http.MethodGet, "/v1/instances", nil, maxListBytes, &list)
	return list, err
}

func instancePath(provider, name string) string {
	return "/v1/instances/" + url.PathEscape(provider) + "/" + url.PathEscape(name)
}

func (c *Client) instance(ctx context.Context, method, path string, body []byte) (Instance, error) {
	var got Instance
	if err := c.call(ctx, method, path, body, MaxAnswerBytes, &got); err != nil {
		return Instance{}, err
	}
	known := []State{StateAbsent, StateProvisioning, StateRunning, StateStopping, StateStopped}
	if !slices.Contains(known, got.State) {
		return Instance{}, fmt.Errorf("%w: it answered with unknown state %q", ErrUnavailable, got.State)
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
		return fmt.Errorf("%w: read its answer: %w", ErrUnavailable, err)
	case int64(len(answer)) > limit:
		return fmt.Errorf("%w: its answer exceeds %d bytes", ErrUnavailable, limit)
	case resp.StatusCode != http.StatusOK:
		return statusError(resp, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%w: its answer is not what was asked for: %w", ErrUnavailable, err)
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
		e.RetryAfter = time.Duration(min(seconds, day)) * time.Second // more would overflow, and nobody waits for it
	}
	return e
}
