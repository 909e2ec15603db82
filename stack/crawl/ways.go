package crawl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

func transport(ca *x509.CertPool, proxy *url.URL) *http.Transport {
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	return t
}

func httpClient(ca *x509.CertPool, proxy *url.URL) *http.Client {
	return &http.Client{Transport: transport(ca, proxy), Timeout: pageTimeout}
}

// get fetches a page.
func get(ctx context.Context, c *http.Client, page string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}

func fetched(resp *http.Response, err error) bool {
	return err == nil && resp.StatusCode == http.StatusOK
}

// direct uses no proxy.
type direct struct{ client *http.Client }

func (*direct) name() string { return "no proxy" }

func (d *direct) worker(int, *useLog) (func(context.Context, string) bool, func()) {
	return func(ctx context.Context, page string) bool {
		for range attempts {
			if fetched(get(ctx, d.client, page)) {
				return true
			}
		}
		return false
	}, func() {}
}

// blind uses the proxies that were healthy in the beginning, at random.
type blind struct {
	names   []string
	clients []*http.Client
	seed    uint64
}

func newBlind(cfg Config, f *fleet) *blind {
	b := &blind{names: f.names, seed: cfg.Seed}
	for _, name := range f.names { // in order, so that the seed decides which proxy is used
		proxy := &url.URL{Scheme: "http", Host: f.proxies[name].Addr()}
		b.clients = append(b.clients, httpClient(cfg.Stack.TargetCA, proxy))
	}
	return b
}

func (*blind) name() string { return "list of proxies" }

func (b *blind) worker(n int, log *useLog) (func(context.Context, string) bool, func()) {
	random := rand.New(rand.NewPCG(b.seed, uint64(n)))
	return func(ctx context.Context, page string) bool {
		for range attempts {
			i := random.IntN(len(b.clients))
			log.add(b.names[i])
			if fetched(get(ctx, b.clients[i], page)) {
				return true
			}
		}
		return false
	}, func() {}
}

// leased uses leases, and another one when the outcome of a request asks for it.
type leased struct {
	client *client.Client
	site   string
}

func (*leased) name() string { return "leases" }

func (l *leased) worker(_ int, log *useLog) (func(context.Context, string) bool, func()) {
	h := &holder{leased: l, log: log}
	return h.fetch, h.release
}

// holder is a worker with a lease.
type holder struct {
	*leased
	log   *useLog
	lease *client.Lease
	pages int
	// failed are the proxies that failed for the page.
	failed []string
}

func (h *holder) fetch(ctx context.Context, page string) bool {
	h.failed = nil
	for range attempts {
		if !h.hold(ctx) {
			return false
		}
		h.log.add(h.lease.Proxy.Name)
		resp, err := get(ctx, h.lease.HTTPClient(), page)
		outcome := client.Judge(resp, err)
		if ctx.Err() != nil {
			return fetched(resp, err)
		}
		if outcome.ChangeProxy {
			_ = h.lease.Report(ctx, outcome.Report) // best effort
			h.failed = append(h.failed, h.lease.Proxy.FullName())
			h.release()
		}
		if fetched(resp, err) {
			return true
		}
	}
	return false
}

// hold acquires a lease when there is none, it was used enough or its proxy fails.
func (h *holder) hold(ctx context.Context) bool {
	if h.lease != nil && h.pages < pagesPerLease && h.lease.Err() == nil && h.lease.Status().Usable {
		h.pages++
		return true
	}
	h.release()
	lease, err := h.client.Acquire(ctx, client.Want{
		Target: h.site, Selector: map[string]string{"pool": poolName}, Exclude: h.failed,
		TTL: 15 * time.Second, Patience: pageTimeout,
	})
	if err != nil {
		return false
	}
	h.lease, h.pages = lease, 1
	h.lease.HTTPClient().Timeout = pageTimeout
	return true
}

func (h *holder) release() {
	if h.lease != nil {
		_ = h.lease.Release(context.Background()) // otherwise it expires
		h.lease = nil
	}
}
