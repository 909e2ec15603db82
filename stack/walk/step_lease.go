package walk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/target"
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

// crawlTimeout bounds one request through a proxy.
const crawlTimeout = 5 * time.Second

// crawl fetches the target through the leased proxy and checks that the target saw the proxy's address, and no header
// that identifies the client.
func (w *walker) crawl(ctx context.Context, l *client.Lease) (target.Seen, error) {
	ctx, cancel := context.WithTimeout(ctx, crawlTimeout)
	defer cancel()
	var seen target.Seen
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.stack.TargetURL+"/", nil)
	if err != nil {
		return seen, err
	}
	resp, err := l.HTTPClient().Do(req)
	if err != nil {
		return seen, fmt.Errorf("crawl through %s: %w", l.ProxyURL.Host, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return seen, fmt.Errorf("crawl through %s: the target responded with %s", l.ProxyURL.Host, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&seen); err != nil {
		return seen, fmt.Errorf("crawl through %s: decode the response: %w", l.ProxyURL.Host, err)
	}
	if seen.Peer != l.Proxy.Host {
		return seen, fmt.Errorf("the target saw %s, want the proxy's %s: the request did not go through it", seen.Peer, l.Proxy.Host)
	}
	if len(seen.Forwarded) > 0 {
		return seen, fmt.Errorf("the proxy identifies its client: %v", seen.Forwarded)
	}
	return seen, nil
}

// accepts returns an error when the proxy does not accept connections.
func accepts(ctx context.Context, p client.Proxy) error {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(p.Host, strconv.Itoa(p.Port)))
	if err != nil {
		return fmt.Errorf("%s was granted at an address that accepts no connections: %w", p.Name, err)
	}
	return conn.Close()
}
