package standin

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the stand-in.
type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	syncs    *prometheus.CounterVec
}

// newMetrics registers the metrics with reg, if it is not nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proxy_operator_engine_hook_calls_total",
			Help: "Hook calls by hook and HTTP status code; code none: no response.",
		}, []string{"hook", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "proxy_operator_engine_hook_duration_seconds",
			Help:    "Duration of hook calls by hook, including failed ones.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10},
		}, []string{"hook"}),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proxy_operator_engine_syncs_total",
			Help: "Reconciles of parents by result: ok, busy (the hook returned 429), waiting (for related objects), error.",
		}, []string{"result"}),
	}
	if reg != nil {
		reg.MustRegister(m.calls, m.duration, m.syncs)
	}
	return m
}

func (m *metrics) observeCall(hook string, code int, took time.Duration) {
	label := "none"
	if code != 0 {
		label = strconv.Itoa(code)
	}
	m.calls.WithLabelValues(hook, label).Inc()
	m.duration.WithLabelValues(hook).Observe(took.Seconds())
}
