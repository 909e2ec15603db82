package api

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Outcomes of a lease request, as proxy_operator_lease_requests_total has them.
const (
	outcomeGranted     = "granted"
	outcomeNoMatch     = "no_match"
	outcomeInvalid     = "invalid"
	outcomeUnavailable = "unavailable"
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
		leaseRequests: counter("lease_requests_total", "Requests for a lease, by outcome: granted, no_match, invalid (4xx) or unavailable (5xx).", "outcome"),
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
	for _, outcome := range []string{outcomeGranted, outcomeNoMatch, outcomeInvalid, outcomeUnavailable} {
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
	if errors.As(err, &e) && e.code == codeNoMatch {
		return outcomeNoMatch
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
