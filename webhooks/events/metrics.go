package events

import "github.com/prometheus/client_golang/prometheus"

// What becomes of an Event.
const (
	resultSent        = "sent"
	resultQueueFull   = "queue_full"
	resultRateLimited = "rate_limited"
	resultRefused     = "refused"
	resultUnreachable = "unreachable"
)

type metrics struct{ events *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{events: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxy_operator_events_total",
		Help: "Kubernetes Events about Proxies by what became of them: sent, or dropped because the queue was full, one Proxy had too many (rate_limited), the API server refused them, or it did not answer (unreachable).",
	}, []string{"result"})}
	for _, result := range []string{resultSent, resultQueueFull, resultRateLimited, resultRefused, resultUnreachable} {
		m.events.WithLabelValues(result)
	}
	reg.MustRegister(m.events)
	return m
}

func (m *metrics) count(result string) { m.events.WithLabelValues(result).Inc() }
