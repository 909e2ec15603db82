package crawl

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// crawlPatience is for how long a crawler waits for a page.
const crawlPatience = 5 * time.Second

// through crawls a page through the lease's proxy, and returns what there is to
// report.
func (c *crawler) through(ctx context.Context, l *held) (result string) {
	rec := history.Crawl{
		Domain: c.cfg.Domain, Crawler: c.name, LeaseID: l.id, Proxy: l.proxy, Endpoint: l.endpoint, Asked: c.cfg.Recorder.Now(),
	}
	rec.At = rec.Asked
	status, err := c.fetch(ctx, l)
	rec.Answered = c.cfg.Recorder.Now()
	rec.Status, rec.OK = status, err == nil && status == http.StatusNoContent
	if err != nil {
		rec.Failure, rec.Detail = failureOf(err), err.Error()
	}
	if ctx.Err() == nil { // else the proxy is not to blame
		c.cfg.Recorder.Add(history.Record{Crawl: &rec})
	}
	switch {
	case rec.OK:
		return "ok"
	case rec.Failure == history.Timeout:
		return "proxy_timeout"
	}
	return "connect_error"
}

func (c *crawler) fetch(ctx context.Context, l *held) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, crawlPatience)
	defer cancel()
	transport := &http.Transport{
		Proxy:             http.ProxyURL(l.proxyURL),
		TLSClientConfig:   &tls.Config{RootCAs: c.cfg.TargetCA, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.TargetURL+"/generate_204", nil)
	if err != nil {
		return 0, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, fmt.Errorf("through %s: %w", l.endpoint, err)
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, err
}
