package api

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// scrapeTimeout bounds how long a scrape waits for the store.
const scrapeTimeout = 5 * time.Second

// Collector reads the fleet and the store at every scrape. Gauges that handlers
// move up and down drift, and keep series of what is gone.
type Collector struct {
	fleet Fleet
	store lease.Store
	log   *slog.Logger

	proxies, stale, behind, shards, leases, expired, sessions, cooldowns *prometheus.Desc
}

// NewCollector returns a collector to register. It reports nothing about the
// fleet while that is not known, and nothing about leases while the store does
// not answer: no number is better than a wrong one.
func NewCollector(f Fleet, store lease.Store, log *slog.Logger) *Collector {
	return &Collector{
		fleet: f, store: store, log: log,
		proxies: prometheus.NewDesc("proxy_operator_proxies", "Proxies, by phase.", []string{"phase"}, nil),
		stale:   prometheus.NewDesc("proxy_operator_proxies_verdict_stale", "Proxies with a verdict, phase Ready or Unhealthy, that no living prober stands behind. They are not leased.", nil, nil),
		behind:  prometheus.NewDesc("proxy_operator_proxies_status_behind", "Proxies whose status says Ready while their ProxyProbe says otherwise, since no hook has answered about it yet. They are not leased, and count as what the ProxyProbe says.", nil, nil),
		shards:  prometheus.NewDesc("proxy_operator_prober_shards", "Prober shards whose Lease object is known, by whether it was renewed lately: alive or lapsed.", []string{"state"}, nil),
		leases:  prometheus.NewDesc("proxy_operator_leases_active", "Leases that run now.", nil, nil),
		expired: prometheus.NewDesc("proxy_operator_leases_expired", "Leases that have expired and still take reports.", nil, nil),

		sessions:  prometheus.NewDesc("proxy_operator_sessions", "Sessions that are remembered, of all tokens.", nil, nil),
		cooldowns: prometheus.NewDesc("proxy_operator_cooldowns", "Cooldowns that are under way, each of one proxy for one target or for all.", nil, nil),
	}
}

// Describe makes it a prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.proxies, c.stale, c.behind, c.shards, c.leases, c.expired, c.sessions, c.cooldowns} {
		ch <- d
	}
}

// Collect makes it a prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	if snap, err := c.fleet.Snapshot(); err == nil {
		c.collectFleet(ch, snap)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	usage, err := c.store.Usage(ctx)
	if err != nil {
		c.log.Warn("cannot count leases for a scrape", "err", err)
		return
	}
	ch <- gauge(c.leases, usage.Total())
	ch <- gauge(c.expired, usage.Expired)
	ch <- gauge(c.sessions, usage.Sessions)
	ch <- gauge(c.cooldowns, usage.Cooldowns)
}

func (c *Collector) collectFleet(ch chan<- prometheus.Metric, snap fleet.Snapshot) {
	byPhase := map[v1alpha1.Phase]int{}
	for _, phase := range phases() {
		byPhase[phase] = 0
	}
	stale, behind := 0, 0
	for _, p := range snap.Proxies {
		byPhase[p.Phase]++
		judged := p.Phase == v1alpha1.PhaseReady || p.Phase == v1alpha1.PhaseUnhealthy
		if judged && !snap.Freshness.Fresh(p.ProxyUID) {
			stale++
		}
		if p.Ahead {
			behind++
		}
	}
	for phase, n := range byPhase {
		label := string(phase)
		if label == "" {
			label = "none" // no hook has answered about it yet
		}
		ch <- gauge(c.proxies, n, label)
	}
	ch <- gauge(c.stale, stale)
	ch <- gauge(c.behind, behind)
	alive, lapsed := snap.Freshness.Shards()
	ch <- gauge(c.shards, alive, "alive")
	ch <- gauge(c.shards, lapsed, "lapsed")
}

// phases lists all that a Proxy may be in once it has a status.
func phases() []v1alpha1.Phase {
	return []v1alpha1.Phase{
		v1alpha1.PhaseProvisioning, v1alpha1.PhaseProbing, v1alpha1.PhaseReady, v1alpha1.PhaseUnhealthy,
		v1alpha1.PhaseReplacing, v1alpha1.PhaseDeleting, v1alpha1.PhaseFailed,
	}
}

func gauge(d *prometheus.Desc, n int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}
