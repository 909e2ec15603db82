package walk

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/target"
)

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
