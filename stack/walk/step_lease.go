package walk

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

// leaseTTL is the TTL of the walk's leases.
const leaseTTL = 2 * time.Minute

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
	l, err := w.api.granted(ctx, want(selector, forTarget))
	if err != nil {
		return err
	}
	return errors.Join(w.useLease(ctx, l, selector), l.Release(ctx))
}

func (w *walker) useLease(ctx context.Context, l *client.Lease, selector map[string]string) error {
	for k, v := range selector {
		if l.Proxy.Attributes[k] != v {
			return fmt.Errorf("requested %v and got %s with %v", selector, l.Proxy.Name, l.Proxy.Attributes)
		}
	}
	w.say("leased %s for %v until %s", l.Proxy.Name, selector, l.ExpiresAt().Format("15:04:05"))
	seen, err := w.crawl(ctx, l)
	if err == nil {
		w.say("GET %s/ through %s: the target saw %s, and no forwarding headers", w.stack.TargetURL, l.ProxyURL, seen.Peer)
	}
	return err
}
