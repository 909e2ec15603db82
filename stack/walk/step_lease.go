package walk

import (
	"context"
	"fmt"
	"net/url"
)

// leaseTTL is the TTL of the walk's leases, in seconds.
const leaseTTL = 120

// targetHost is the target's name in leases and reports.
func (w *walker) targetHost() string {
	u, err := url.Parse(w.stack.TargetURL)
	if err != nil {
		return w.stack.TargetURL
	}
	return u.Hostname()
}

// leaseAndCrawl is step 2.
func (w *walker) leaseAndCrawl(ctx context.Context) error {
	proxies, err := w.api.list(ctx)
	if err != nil {
		return err
	}
	for _, p := range proxies {
		w.say("listed: %s at %s:%d, attributes %v, leasable %t", p.Name, p.Host, p.Port, p.Attributes, p.Leasable)
	}
	if len(proxies) != 3 {
		return fmt.Errorf("discovery lists %d proxies, want 3", len(proxies))
	}
	for _, selector := range []map[string]string{{"geo": "eu", "city": paris}, {"geo": "us"}} {
		if err := w.leaseOnce(ctx, selector, w.targetHost()); err != nil {
			return err
		}
	}
	return nil
}

// leaseOnce leases, crawls and releases.
func (w *walker) leaseOnce(ctx context.Context, selector map[string]string, forTarget string) error {
	g, err := w.api.granted(ctx, leaseRequest{Selector: selector, Target: forTarget, TTLSeconds: leaseTTL})
	if err != nil {
		return err
	}
	for k, v := range selector {
		if g.Proxy.Attributes[k] != v {
			return fmt.Errorf("asked for %v and got %s with %v", selector, g.Proxy.Name, g.Proxy.Attributes)
		}
	}
	w.say("leased %s for %v until %s", g.Proxy.Name, selector, g.ExpiresAt.Format("15:04:05"))
	if err := w.crawlThrough(ctx, g); err != nil {
		return err
	}
	return w.api.release(ctx, g.LeaseID)
}
