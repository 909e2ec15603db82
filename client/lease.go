package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Result is how it went with a proxy.
type Result string

// Results that a report may have. The API's reference says what each does.
const (
	OK            Result = "ok"
	RateLimited   Result = "rate_limited"
	Banned        Result = "banned"
	Captcha       Result = "captcha"
	TargetTimeout Result = "target_timeout"
	ProxyTimeout  Result = "proxy_timeout"
	ConnectError  Result = "connect_error"
)

// Lease is a proxy that is yours until you release it. Its methods may be used
// from many goroutines.
type Lease struct {
	// ID of the lease.
	ID string
	// Proxy that it is on.
	Proxy Proxy
	// ProxyURL is ready to be used, and may hold a password.
	ProxyURL *url.URL
	// Target as discovery keeps it.
	Target string
	// FencingToken grows with every grant: of two who think that a proxy is
	// theirs, the one with the larger token is right.
	FencingToken uint64

	client  *Client
	ttl     time.Duration
	onLost  func(*Lease, error)
	tunnels *tunnels
	http    *http.Client

	ended context.Context // its cause is ErrReleased, or what was lost
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

// HTTPClient sends requests through the proxy, all of them through connections
// that the end of the lease closes.
func (l *Lease) HTTPClient() *http.Client { return l.http }

// ExpiresAt is when the lease ends by our clock unless it is renewed before.
func (l *Lease) ExpiresAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Done is closed when the lease was released or lost; Err then says which.
func (l *Lease) Done() <-chan struct{} { return l.ended.Done() }

// Err returns nil while the lease is good, ErrReleased after a release, and
// otherwise an error that unwraps to ErrLost.
func (l *Lease) Err() error { return context.Cause(l.ended) }

// during returns a context that ends with ctx or with the lease.
func (l *Lease) during(ctx context.Context) (context.Context, *Lease) {
	ctx, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(l.ended, func() { cancel(l.Err()) })
	return ctx, l
}

// Report says how it went. A target other than the lease's may be named. While
// discovery is away, such as for a rollout, it tries again for 20 seconds. A
// *APIError with the code too_many_cooldowns says that the report was not taken,
// and its RetryAfter when it can be.
func (l *Lease) Report(ctx context.Context, result Result, target string) error {
	body := map[string]string{"result": string(result)}
	if target != "" {
		body["target"] = target
	}
	if err := l.insist(ctx, http.MethodPost, l.path()+"/report", body); err != nil {
		return fmt.Errorf("report %s: %w", result, err)
	}
	return nil
}

func (l *Lease) path() string { return "/v1/leases/" + url.PathEscape(l.ID) }

// Release closes all connections through the proxy and gives it back. It is
// safe to call it twice. When discovery cannot be reached the error says so, and
// the lease ends by itself; the connections are closed in every case.
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
	return l.giveBack(ctx)
}

// giveBack tells discovery.
func (l *Lease) giveBack(ctx context.Context) error {
	if err := l.insist(ctx, http.MethodDelete, l.path(), nil); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// insist makes a call that may be made twice, again and again while discovery is
// away, such as for a rollout.
func (l *Lease) insist(ctx context.Context, method, path string, body any) error {
	deadline := time.Now().Add(awayAtMost)
	for try := 0; ; try++ {
		_, err := l.client.call(ctx, method, path, body, "", 0)
		if err == nil {
			return nil
		}
		if !passes(err) || !sleepUntil(ctx, pause(err, try), deadline) {
			return err
		}
	}
}
