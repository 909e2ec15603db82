// Package crawl is the clients of a fault campaign. Many crawlers with different
// behaviours lease proxies, crawl through them, and record all responses. They speak
// HTTP without the client package, which would hide statuses, retries and bugs that
// both sides share.
package crawl

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// Replica is one discovery process.
type Replica struct {
	Name string // in records
	URL  string // root of its API
}

// Config of the crawlers. All fields but Selectors are required.
type Config struct {
	Recorder *history.Recorder // of all calls
	// Domain of all Replicas: they share one lease store.
	Domain   string
	Replicas []Replica
	Token    string // the bearer token of the crawlers
	// Crawlers is their number, Rate the calls a second of all together. Requests
	// through proxies come on top, about half as many.
	Crawlers int
	Rate     float64
	Seed     uint64 // of all random choices
	// TargetURL is the site to crawl: GET /generate_204 must return 204. TargetCA
	// verifies it.
	TargetURL string
	TargetCA  *x509.CertPool
	Selectors []map[string]string // of lease requests. Some requests have none.

	second time.Duration // the unit of all pauses, shorter in tests
}

func (c *Config) validate() error {
	switch {
	case c.Recorder == nil || c.Domain == "" || len(c.Replicas) == 0 || c.Token == "" || c.TargetURL == "" || c.TargetCA == nil:
		return errors.New("crawl: Recorder, Domain, Replicas, Token, TargetURL and TargetCA are required")
	case c.Crawlers < 1 || c.Rate <= 0:
		return fmt.Errorf("crawl: bad load: %d crawlers, %g calls a second", c.Crawlers, c.Rate)
	}
	return nil
}

// Run runs all crawlers until ctx ends. Their leases then expire.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	if cfg.second == 0 {
		cfg.second = time.Second
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: cfg.Crawlers, IdleConnTimeout: 10 * time.Second, DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	pace := rate.NewLimiter(rate.Limit(cfg.Rate), 1)
	used := &recent{}
	var all sync.WaitGroup
	for i := range cfg.Crawlers {
		c := &crawler{
			cfg:    &cfg,
			name:   fmt.Sprintf("%s-%02d", cfg.Domain, i),
			random: rand.New(rand.NewPCG(cfg.Seed, uint64(i))),
			pace:   pace,
			used:   used,
			http:   transport,
		}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
	return nil
}

// mostExcluded is the most proxies that a request may exclude.
const mostExcluded = 64

// recent is the proxies that the crawlers of a domain used last. Requests that exclude
// them reach the whole fleet.
type recent struct {
	mu    sync.Mutex
	names []string
}

func (r *recent) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = slices.DeleteFunc(r.names, func(n string) bool { return n == name })
	r.names = append(r.names, name)
	if len(r.names) > mostExcluded {
		r.names = r.names[1:]
	}
}

func (r *recent) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.names)
}
