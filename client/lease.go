package client

import (
	"context"
	"encoding/json"
	"errors"
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

// keep renews the lease until it ends, then closes the connections, and calls OnLost
// last, since that may call Release, which waits for done.
func (l *Lease) keep() {
	defer l.notifyLost()
	defer close(l.done)
	defer l.tunnels.close()
	next := l.ttl / 3
	for try := 0; ; {
		if !l.sleep(next) {
			break
		}
		err := l.renew()
		switch {
		case err == nil:
			try, next = 0, l.ttl/3
			continue
		case l.ended.Err() != nil: // released meanwhile
		case ended(err):
			l.lose(err)
		default: // a retry may succeed before the lease expires
			next = pause(err, try)
			try++
			continue
		}
		break
	}
}

// inTime is d, or half of the time left when the lease would expire within d: a retry
// before a Retry-After is over is better than the certain loss of the lease.
func inTime(d, left time.Duration) time.Duration {
	const hardly = 200 * time.Millisecond
	if d < left || left < hardly {
		return d
	}
	return left / 2
}

// sleep waits for d, or inTime. It returns false when the lease has ended or expires.
func (l *Lease) sleep(d time.Duration) bool {
	left := time.Until(l.ExpiresAt())
	d = inTime(d, left)
	expires := left <= d
	timer := time.NewTimer(max(0, min(d, left)))
	defer timer.Stop()
	select {
	case <-l.ended.Done():
		return false
	case <-timer.C:
	}
	if expires {
		l.lose(errors.New("it expired, since discovery could not be reached to renew it"))
	}
	return !expires
}

func (l *Lease) renew() error {
	body := map[string]int64{"ttlSeconds": int64(l.ttl / time.Second)}
	// A renewal after the lease has expired is useless.
	ctx, cancel := context.WithDeadline(l.ended, l.ExpiresAt())
	defer cancel()
	sent := time.Now()
	a, err := l.client.call(ctx, http.MethodPost, l.path()+"/renew", body, "", 0)
	if err != nil {
		return err
	}
	var g grant
	if err := json.Unmarshal(a.body, &g); err != nil {
		return fmt.Errorf("read the renewal: %w", err)
	}
	if g.LeaseID != l.ID || g.ExpiresAt.IsZero() { // an intermediary may have answered
		return errors.New("the answer is no renewal of this lease")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = deadlineOf(g, a, sent)
	return nil
}

// lose ends a lease that was not released.
func (l *Lease) lose(cause error) { l.end(fmt.Errorf("%w: %w", ErrLost, cause)) }

// notifyLost calls OnLost for a lost lease.
func (l *Lease) notifyLost() {
	if err := l.Err(); l.onLost != nil && errors.Is(err, ErrLost) {
		l.onLost(l, err)
	}
}
