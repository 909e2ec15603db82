package walk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// callTimeout bounds one call of the discovery API.
const callTimeout = 10 * time.Second

// discoveryClient calls the discovery API as a crawler would.
type discoveryClient struct {
	url, token string
	http       *http.Client
}

func newDiscoveryClient(url, token string) *discoveryClient {
	return &discoveryClient{url: url, token: token, http: &http.Client{
		Timeout:   callTimeout,
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
}

// listedProxy is one entry of GET /v1/proxies.
type listedProxy struct {
	Name               string            `json:"name"`
	Host               string            `json:"host"`
	Port               int               `json:"port"`
	Attributes         map[string]string `json:"attributes"`
	Phase              string            `json:"phase"`
	ActiveLeases       int               `json:"activeLeases"`
	Leasable           bool              `json:"leasable"`
	NotLeasableMessage string            `json:"notLeasableMessage"`
}

// grant is the answer to a granted POST /v1/leases.
type grant struct {
	LeaseID   string      `json:"leaseID"`
	Proxy     listedProxy `json:"proxy"`
	ProxyURL  string      `json:"proxyURL"`
	ExpiresAt time.Time   `json:"expiresAt"`
}

// refusal is the answer to a refused one.
type refusal struct {
	Error             string `json:"error"`
	Message           string `json:"message"`
	Considered        int    `json:"considered"`
	InCooldown        int    `json:"inCooldown"`
	RetryAfterSeconds int    `json:"retryAfterSeconds"`
}

// leaseRequest is the body of POST /v1/leases.
type leaseRequest struct {
	Selector   map[string]string `json:"selector,omitempty"`
	Target     string            `json:"target,omitempty"`
	TTLSeconds int               `json:"ttlSeconds,omitempty"`
}

func (c *discoveryClient) list(ctx context.Context) ([]listedProxy, error) {
	var body struct {
		Proxies []listedProxy `json:"proxies"`
	}
	if err := c.expect(ctx, http.MethodGet, "/v1/proxies", nil, http.StatusOK, &body); err != nil {
		return nil, err
	}
	return body.Proxies, nil
}

func (c *discoveryClient) find(ctx context.Context, name string) (listedProxy, error) {
	proxies, err := c.list(ctx)
	if err != nil {
		return listedProxy{}, err
	}
	for _, p := range proxies {
		if p.Name == name {
			return p, nil
		}
	}
	return listedProxy{}, fmt.Errorf("discovery does not list %s", name)
}

// lease asks for a lease; exactly one of grant and refusal is returned when
// there is no error.
func (c *discoveryClient) lease(ctx context.Context, req leaseRequest) (*grant, *refusal, error) {
	status, body, err := c.call(ctx, http.MethodPost, "/v1/leases", req)
	switch {
	case err != nil:
		return nil, nil, err
	case status == http.StatusCreated:
		g := &grant{}
		return g, nil, decode(body, g)
	case status == http.StatusConflict:
		r := &refusal{}
		return nil, r, decode(body, r)
	}
	return nil, nil, fmt.Errorf("POST /v1/leases answered %d: %s", status, body)
}

// granted asks for a lease that must be granted.
func (c *discoveryClient) granted(ctx context.Context, req leaseRequest) (*grant, error) {
	g, refused, err := c.lease(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case refused != nil:
		return nil, fmt.Errorf("lease for %v refused: %s", req.Selector, refused.Message)
	}
	return g, nil
}

// refused asks for a lease that must be refused.
func (c *discoveryClient) refused(ctx context.Context, req leaseRequest) (*refusal, error) {
	g, refused, err := c.lease(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case g != nil:
		return nil, fmt.Errorf("lease for %v and target %q granted on %s, want a refusal", req.Selector, req.Target, g.Proxy.Name)
	}
	return refused, nil
}

func (c *discoveryClient) report(ctx context.Context, leaseID, result, target string) error {
	body := map[string]string{"result": result, "target": target}
	return c.expect(ctx, http.MethodPost, "/v1/leases/"+leaseID+"/report", body, http.StatusNoContent, nil)
}

func (c *discoveryClient) release(ctx context.Context, leaseID string) error {
	return c.expect(ctx, http.MethodDelete, "/v1/leases/"+leaseID, nil, http.StatusNoContent, nil)
}

// expect calls and wants that status; into, if any, receives the body.
func (c *discoveryClient) expect(ctx context.Context, method, path string, in any, want int, into any) error {
	status, body, err := c.call(ctx, method, path, in)
	if err != nil {
		return err
	}
	if status != want {
		return fmt.Errorf("%s %s answered %d, want %d: %s", method, path, status, want, body)
	}
	if into == nil {
		return nil
	}
	return decode(body, into)
}

func (c *discoveryClient) call(ctx context.Context, method, path string, in any) (int, []byte, error) {
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return 0, nil, fmt.Errorf("encode the request of %s: %w", path, err)
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer of %s %s: %w", method, path, err)
	}
	return resp.StatusCode, answer, nil
}

func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read the answer %q: %w", body, err)
	}
	return nil
}
