package walk

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/target"
)

// crawlTimeout bounds one request through a proxy.
const crawlTimeout = 5 * time.Second

// crawl fetches the target through a proxy and returns what the target saw.
func (w *walker) crawl(ctx context.Context, proxyURL string) (target.Seen, error) {
	var seen target.Seen
	proxy, err := url.Parse(proxyURL)
	if err != nil {
		return seen, fmt.Errorf("the granted proxyURL: %w", err)
	}
	client := &http.Client{Timeout: crawlTimeout, Transport: &http.Transport{
		Proxy:             http.ProxyURL(proxy),
		TLSClientConfig:   &tls.Config{RootCAs: w.stack.TargetCA, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true, // the next crawl opens a tunnel of its own
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.stack.TargetURL+"/", nil)
	if err != nil {
		return seen, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return seen, fmt.Errorf("crawl through %s: %w", proxy.Host, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return seen, fmt.Errorf("crawl through %s: the target answered %s", proxy.Host, resp.Status)
	}
	return seen, json.NewDecoder(resp.Body).Decode(&seen)
}

// crawlThrough crawls with a grant and checks that the target saw the proxy, and
// nothing that gives the client away.
func (w *walker) crawlThrough(ctx context.Context, g *grant) error {
	seen, err := w.crawl(ctx, g.ProxyURL)
	if err != nil {
		return err
	}
	if seen.Peer != g.Proxy.Host {
		return fmt.Errorf("the target saw %s, want the proxy's %s: the request did not go through it", seen.Peer, g.Proxy.Host)
	}
	if len(seen.Forwarded) > 0 {
		return fmt.Errorf("the proxy gives its client away: %v", seen.Forwarded)
	}
	w.say("GET %s/ through %s: the target saw %s, and no forwarding headers", w.stack.TargetURL, g.ProxyURL, seen.Peer)
	return nil
}

// answers reports whether something accepts connections at the granted address.
func answers(ctx context.Context, p listedProxy) error {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(p.Host, strconv.Itoa(p.Port)))
	if err != nil {
		return fmt.Errorf("%s was granted at an address that does not answer: %w", p.Name, err)
	}
	return conn.Close()
}
