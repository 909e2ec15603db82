package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Lease is a proxy that is yours until you release it. Its methods are safe for
// concurrent use.
type Lease struct {
	// ID of the lease.
	ID string
	// Proxy that it is on.
	Proxy Proxy
	// ProxyURL is ready to use, and may contain a password.
	ProxyURL *url.URL
	// Target as discovery keeps it.
	Target string
	// FencingToken grows with every grant: of two holders of one proxy, the one with
	// the larger token came later.
	FencingToken uint64

	client  *Client
	ttl     time.Duration
	onLost  func(*Lease, error)
	tunnels *tunnels
	http    *http.Client

	ended context.Context // its cause is ErrReleased or an ErrLost
	end   context.CancelCauseFunc
	done  chan struct{} // closed when the renewal has stopped

	mu       sync.Mutex
	deadline time.Time
	released bool
}

func startLease(c *Client, g grant, proxyURL *url.URL, deadline time.Time, w Want) *Lease {
	l := &Lease{
		ID: g.LeaseID, Proxy: g.Proxy, ProxyURL: proxyURL, Target: g.Target, FencingToken: g.FencingToken,
		client: c, ttl: time.Duration(g.TTLSeconds) * time.Second, onLost: w.OnLost,
		tunnels: newTunnels(), done: make(chan struct{}), deadline: deadline,
	}
	l.ended, l.end = context.WithCancelCause(context.Background())
	l.http = &http.Client{Transport: l.tunnels.transport(c.transport, proxyURL)}
	go l.keep()
	return l
}

// HTTPClient sends requests through the proxy. The end of the lease closes all of its
// connections.
func (l *Lease) HTTPClient() *http.Client { return l.http }

// ExpiresAt is when the lease expires by the client's clock unless it is renewed.
func (l *Lease) ExpiresAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Done is closed when the lease was released or lost; Err then returns which.
func (l *Lease) Done() <-chan struct{} { return l.ended.Done() }

// Err returns nil while the lease is active, ErrReleased after a release, and
// otherwise an error that unwraps to ErrLost.
func (l *Lease) Err() error { return context.Cause(l.ended) }

// during returns a context that ends with ctx or with the lease.
func (l *Lease) during(ctx context.Context) (context.Context, *Lease) {
	ctx, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(l.ended, func() { cancel(l.Err()) })
	return ctx, l
}

// Report sends a result, for the lease's target when target is "". While discovery is
// down, such as in a rollout, it retries for 20 seconds. An *APIError with the code
// too_many_cooldowns means that the report was dropped; retry after its RetryAfter.
func (l *Lease) Report(ctx context.Context, result Result, target string) error {
	body := map[string]string{"result": string(result)}
	if target != "" {
		body["target"] = target
	}
	if err := l.retry(ctx, http.MethodPost, l.path()+"/report", body); err != nil {
		return fmt.Errorf("report %s: %w", result, err)
	}
	return nil
}

func (l *Lease) path() string { return "/v1/leases/" + url.PathEscape(l.ID) }

// Release closes all connections through the proxy and ends the lease. It is
// idempotent. It fails when discovery stays unreachable; then the lease expires by
// itself. The connections are closed in every case.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	again := l.released
	l.released = true
	l.mu.Unlock()
	l.end(ErrReleased)
	<-l.done
	if again {
		return nil
	}
	if err := l.retry(ctx, http.MethodDelete, l.path(), nil); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// retry makes an idempotent call, and retries it for maxRetryTime while discovery is
// down.
func (l *Lease) retry(ctx context.Context, method, path string, body any) error {
	deadline := time.Now().Add(maxRetryTime)
	for try := 0; ; try++ {
		_, err := l.client.call(ctx, method, path, body, "", 0)
		if err == nil {
			return nil
		}
		if !retryable(err) || !sleepUntil(ctx, pause(err, try), deadline) {
			return err
		}
	}
}
