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
	// Name that records have.
	Name string
	// URL is the root of its API.
	URL string
}

// Config says who crawls what. All fields but Selectors are required.
type Config struct {
	// Recorder is told of every call.
	Recorder *history.Recorder
	// Domain of all Replicas: they grant from one lease store.
	Domain   string
	Replicas []Replica
	// Token is the bearer token of the crawlers.
	Token string
	// Crawlers is how many there are, Rate the calls a second that all of them
	// make together; crawls through proxies come on top, about half as many.
	Crawlers int
	Rate     float64
	// Seed that the choices of all of them follow from.
	Seed uint64
	// TargetURL is the site that is crawled: GET /generate_204 must answer 204.
	// TargetCA verifies it.
	TargetURL string
	TargetCA  *x509.CertPool
	// Selectors are what crawlers ask for, one at a time, besides nothing.
	Selectors []map[string]string

	// second is what crawlers take for one; tests are in a hurry.
	second time.Duration
}

func (c *Config) validate() error {
	switch {
	case c.Recorder == nil || c.Domain == "" || len(c.Replicas) == 0 || c.Token == "" || c.TargetURL == "" || c.TargetCA == nil:
		return errors.New("crawl: Recorder, Domain, Replicas, Token, TargetURL and TargetCA are required")
	case c.Crawlers < 1 || c.Rate <= 0:
		return fmt.Errorf("crawl: %d crawlers at %g calls a second crawl nothing", c.Crawlers, c.Rate)
	}
	return nil
}

// Run has all crawlers crawl until ctx ends. Leases that are held then run out
// by themselves.
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

// mostExcluded is how many proxies a request may exclude.
const mostExcluded = 64

// recent is which proxies all crawlers of a domain used last. Those who exclude them
// get to proxies that discovery would rather not give, and so to all of the fleet.
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
