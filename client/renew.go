package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

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
