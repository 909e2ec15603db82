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
	// RawProxyURL is the URL as discovery wrote it: every character of the password that
	// some program takes for a delimiter is encoded, which ProxyURL.String does not do.
	RawProxyURL string
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

	ended    context.Context // its cause is ErrReleased or an ErrLost
	end      context.CancelCauseFunc
	done     chan struct{} // closed when the renewal has stopped
	unusable chan struct{}

	releasing chan struct{} // its one place is taken during a release
	released  bool          // successfully

	mu       sync.Mutex
	deadline time.Time
	status   ProxyStatus
}

func startLease(c *Client, g grant, proxyURL *url.URL, deadline time.Time, w Want) *Lease {
	l := &Lease{
		ID: g.LeaseID, Proxy: g.Proxy, ProxyURL: proxyURL, RawProxyURL: g.ProxyURL, Target: g.Target, FencingToken: g.FencingToken,
		client: c, ttl: time.Duration(g.TTLSeconds) * time.Second, onLost: w.OnLost,
		tunnels: newTunnels(), done: make(chan struct{}), unusable: make(chan struct{}), releasing: make(chan struct{}, 1), deadline: deadline,
		status: ProxyStatus{Verdict: "Healthy", Usable: true},
	}
	l.ended, l.end = context.WithCancelCause(context.Background())
	l.http = &http.Client{Transport: staged{l.tunnels.transport(c.transport, proxyURL), l.Err}}
	go l.keep()
	return l
}

// HTTPClient sends requests through the proxy. The end of the lease closes all of its
// connections. Its errors unwrap to a *ProxyError.
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

// Unusable is closed when a renewal has shown that the proxy should not be used any
// more, such as when it fails its probes or is about to be deleted; Status has the
// reason. The lease goes on, for requests under way: acquire another one, then release
// this.
func (l *Lease) Unusable() <-chan struct{} { return l.unusable }

// Status is what discovery knew of the proxy at the last renewal.
func (l *Lease) Status() ProxyStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// during returns a context that ends with ctx or with the lease.
func (l *Lease) during(ctx context.Context) (context.Context, *Lease) {
	ctx, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(l.ended, func() { cancel(l.Err()) })
	return ctx, l
}

// Report sends a report, such as that of an Outcome; one without a Result is not sent.
// While discovery is down, such as in a rollout, it retries for 20 seconds. An *APIError
// with the code too_many_cooldowns means that the report was dropped; retry after its
// RetryAfter.
func (l *Lease) Report(ctx context.Context, r Report) error {
	if r.Result == "" {
		return nil
	}
	body := reportBody{Result: r.Result, Target: r.Target, RetryAfter: int64((r.RetryAfter + time.Second - 1) / time.Second)}
	if err := l.retry(ctx, ctx, http.MethodPost, l.path()+"/report", body); err != nil {
		return fmt.Errorf("report %s: %w", r.Result, err)
	}
	return nil
}

// reportBody is the body of POST /v1/leases/{id}/report.
type reportBody struct {
	Result     Result `json:"result"`
	Target     string `json:"target,omitempty"`
	RetryAfter int64  `json:"retryAfterSeconds,omitempty"`
}

func (l *Lease) path() string { return leasePath(l.ID) }

func leasePath(id string) string { return "/v1/leases/" + url.PathEscape(id) }

// Release closes all connections through the proxy and ends the lease. It is
// idempotent. It fails when discovery stays unreachable; then the lease expires by
// itself, or another Release ends it. The connections are closed in every case. When ctx
// has ended, Release still makes one call, of at most 10 seconds.
func (l *Lease) Release(ctx context.Context) error {
	l.end(ErrReleased)
	<-l.done
	l.releasing <- struct{}{}
	defer func() { <-l.releasing }()
	if l.released {
		return nil
	}
	if err := l.retry(ctx, context.WithoutCancel(ctx), http.MethodDelete, l.path(), nil); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	l.released = true
	return nil
}

// retry makes an idempotent call under callCtx, and retries it for maxRetryTime while
// discovery is down and ctx lasts.
func (l *Lease) retry(ctx, callCtx context.Context, method, path string, body any) error {
	deadline := time.Now().Add(maxRetryTime)
	for try := 0; ; try++ {
		_, err := l.client.call(callCtx, method, path, body, "", 0)
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
	next := l.period()
	for try := 0; ; {
		if !l.sleep(next) {
			break
		}
		err := l.renew()
		switch {
		case err == nil:
			try, next = 0, l.period()
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

// maxPeriod between renewals. They also bring the proxy's status.
const maxPeriod = 30 * time.Second

func (l *Lease) period() time.Duration { return min(l.ttl/3, maxPeriod) }

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
	if g.ProxyStatus != nil {
		if l.status.Usable && !g.ProxyStatus.Usable {
			close(l.unusable)
		}
		g.ProxyStatus.Usable = g.ProxyStatus.Usable && l.status.Usable
		l.status = *g.ProxyStatus
	}
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
