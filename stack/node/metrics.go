package node

import "github.com/prometheus/client_golang/prometheus"

// metrics reads the node at scrape time, because gauges that are incremented and decremented drift.
type metrics struct {
	node       *Node
	containers *prometheus.Desc
	addresses  *prometheus.Desc
}

func newMetrics(n *Node) *metrics {
	return &metrics{
		node:       n,
		containers: prometheus.NewDesc("proxy_operator_node_containers", "Containers of this node by state.", []string{"state"}, nil),
		addresses:  prometheus.NewDesc("proxy_operator_node_addresses_in_use", "Addresses of the node's subnet that Pods have.", nil, nil),
	}
}

// Collector returns the node's metrics.
func (n *Node) Collector() prometheus.Collector { return n.metrics }

// Describe sends the descriptions of the metrics.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.containers
	ch <- m.addresses
}

// Collect sends the metrics.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	running, waiting := m.node.counts()
	ch <- prometheus.MustNewConstMetric(m.containers, prometheus.GaugeValue, float64(running), "running")
	ch <- prometheus.MustNewConstMetric(m.containers, prometheus.GaugeValue, float64(waiting), "waiting")
	ch <- prometheus.MustNewConstMetric(m.addresses, prometheus.GaugeValue, float64(m.node.addresses.inUse()))
}

func (n *Node) counts() (running, waiting int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		if c.snapshot().Current.Running != nil {
			running++
		} else {
			waiting++
		}
	}
	return running, waiting
}
