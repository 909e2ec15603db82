package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Outcomes of a lease request, as proxy_operator_lease_requests_total has them.
const (
	outcomeGranted      = "granted"
	outcomeNoMatch      = "no_match"
	outcomeInvalid      = "invalid"
	outcomeUnavailable  = "unavailable"
	outcomeDisconnected = "disconnected"
)

// Metrics counts requests and their outcomes.
type Metrics struct {
	leaseRequests *prometheus.CounterVec
	leaseReports  *prometheus.CounterVec
	httpRequests  *prometheus.CounterVec
	httpDuration  *prometheus.HistogramVec
	tokenRequests *prometheus.CounterVec
	waiting       prometheus.Gauge
}

// NewMetrics registers the counters with reg. Like MustRegister, it panics when they
// are registered already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "proxy_operator_" + name, Help: help}, labels)
	}
	m := &Metrics{
		leaseRequests: counter("lease_requests_total", "Requests for a lease, by outcome: granted, no_match, invalid (4xx), unavailable (5xx) or disconnected (the client left first).", "outcome"),
		leaseReports:  counter("lease_reports_total", "Accepted reports on leases, by result.", "result"),
		httpRequests:  counter("http_requests_total", "HTTP requests, by route pattern, method and status code.", "route", "method", "code"),
		tokenRequests: counter("token_requests_total", "Authenticated requests, by token name and outcome: allowed or limited (429).", "token", "outcome"),
		httpDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "proxy_operator_http_request_duration_seconds",
			Help:    "Time from the first byte of a request's header to the end of its answer, by route pattern.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9), // 0.5 ms to 33 s
		}, []string{"route"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "proxy_operator_lease_requests_waiting",
			Help: "Requests for a lease that wait for a free proxy.",
		}),
	}
	for _, outcome := range []string{outcomeGranted, outcomeNoMatch, outcomeInvalid, outcomeUnavailable, outcomeDisconnected} {
		m.leaseRequests.WithLabelValues(outcome)
	}
	for _, result := range lease.Results() {
		m.leaseReports.WithLabelValues(string(result))
	}
	reg.MustRegister(m.leaseRequests, m.leaseReports, m.httpRequests, m.httpDuration, m.tokenRequests, m.waiting)
	return m
}

func (m *Metrics) leaseRequest(err error) {
	m.leaseRequests.WithLabelValues(outcomeOf(err)).Inc()
}

func outcomeOf(err error) string {
	if err == nil {
		return outcomeGranted
	}
	var e *apiError
	switch {
	case errors.As(err, &e) && e.code == codeNoMatch:
		return outcomeNoMatch
	case errors.Is(err, errDisconnected):
		return outcomeDisconnected
	}
	if problems[classify(err).code].status < http.StatusInternalServerError {
		return outcomeInvalid
	}
	return outcomeUnavailable
}

func (m *Metrics) leaseReport(r lease.Result) { m.leaseReports.WithLabelValues(string(r)).Inc() }

// tokenRequest counts by token name. There is a series for each name that the tokens
// file has had since the process started.
func (m *Metrics) tokenRequest(name string, allowed bool) {
	outcome := "allowed"
	if !allowed {
		outcome = "limited"
	}
	m.tokenRequests.WithLabelValues(name, outcome).Inc()
}

func (m *Metrics) observe(route, method string, status int, took time.Duration) {
	m.httpRequests.WithLabelValues(route, knownMethod(method), strconv.Itoa(status)).Inc()
	m.httpDuration.WithLabelValues(route).Observe(took.Seconds())
}

// knownMethod keeps clients from creating time series.
func knownMethod(method string) string {
	known := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
	if slices.Contains(known, method) {
		return method
	}
	return "other"
}

// scrapeTimeout bounds how long a scrape waits for the store.
const scrapeTimeout = 5 * time.Second

// Collector reads the fleet and the store at every scrape. Gauges that handlers
// increment and decrement would drift, and keep series of what is gone.
type Collector struct {
	fleet Fleet
	store lease.Store
	log   *slog.Logger

	proxies, stale, behind, shards, leases, expired, sessions, cooldowns *prometheus.Desc
}

// NewCollector returns a collector to register. It has no metrics of the fleet
// before the first list, and none of leases while the store is unavailable: no
// number is better than a wrong one.
func NewCollector(f Fleet, store lease.Store, log *slog.Logger) *Collector {
	return &Collector{
		fleet: f, store: store, log: log,
		proxies: prometheus.NewDesc("proxy_operator_proxies", "Proxies, by phase.", []string{"phase"}, nil),
		stale:   prometheus.NewDesc("proxy_operator_proxies_verdict_stale", "Proxies in phase Ready or Unhealthy whose verdict is stale, since no live prober shard owns them. They are not leased.", nil, nil),
		behind:  prometheus.NewDesc("proxy_operator_proxies_status_behind", "Proxies whose status is Ready while their ProxyProbe has a newer verdict that no hook has applied yet. They are not leased, and count by the ProxyProbe's verdict.", nil, nil),
		shards:  prometheus.NewDesc("proxy_operator_prober_shards", "Prober shards with a Lease object, by whether it was renewed within --verdict-max-age: alive or lapsed.", []string{"state"}, nil),
		leases:  prometheus.NewDesc("proxy_operator_leases_active", "Active leases.", nil, nil),
		expired: prometheus.NewDesc("proxy_operator_leases_expired", "Expired leases that still accept reports.", nil, nil),

		sessions:  prometheus.NewDesc("proxy_operator_sessions", "Sessions of all tokens.", nil, nil),
		cooldowns: prometheus.NewDesc("proxy_operator_cooldowns", "Active cooldowns, each of one proxy for one target or for all targets.", nil, nil),
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
	for _, phase := range phases {
		byPhase[phase] = 0
	}
	stale, behind := 0, 0
	for _, p := range snap.Proxies {
		byPhase[p.Phase]++
		hasVerdict := p.Phase == v1alpha1.PhaseReady || p.Phase == v1alpha1.PhaseUnhealthy
		if hasVerdict && !snap.Freshness.Fresh(p.ProxyUID) {
			stale++
		}
		if p.VerdictAhead {
			behind++
		}
	}
	for phase, n := range byPhase {
		label := string(phase)
		if label == "" {
			label = "none" // no hook has set its status yet
		}
		ch <- gauge(c.proxies, n, label)
	}
	ch <- gauge(c.stale, stale)
	ch <- gauge(c.behind, behind)
	alive, lapsed := snap.Freshness.Shards()
	ch <- gauge(c.shards, alive, "alive")
	ch <- gauge(c.shards, lapsed, "lapsed")
}

// phases lists all phases of a Proxy that has a status.
var phases = []v1alpha1.Phase{
	v1alpha1.PhaseProvisioning, v1alpha1.PhaseProbing, v1alpha1.PhaseReady, v1alpha1.PhaseUnhealthy,
	v1alpha1.PhaseReplacing, v1alpha1.PhaseDeleting, v1alpha1.PhaseFailed,
}

func gauge(d *prometheus.Desc, n int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}
