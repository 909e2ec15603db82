package standin

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

func TestNewRefuses(t *testing.T) {
	good := Config{Controller: &metacontroller.Controller{}, REST: &rest.Config{Host: "http://127.0.0.1:1"}, Workers: 1}
	_, err := New(good)
	require.NoError(t, err)
	for want, edit := range map[string]func(*Config){
		"no controller":  func(c *Config) { c.Controller = nil },
		"no REST config": func(c *Config) { c.REST = nil },
		"0 workers":      func(c *Config) { c.Workers = 0 },
		"is negative":    func(c *Config) { c.ResyncPeriod = -time.Second },
	} {
		cfg := good
		edit(&cfg)
		_, err := New(cfg)
		require.ErrorIs(t, err, ErrBadConfig)
		require.ErrorContains(t, err, want)
	}
}

func TestRunWaitsForTheAPIServer(t *testing.T) {
	e, err := New(Config{
		Controller: manifestFor(t, "http://127.0.0.1:1"),
		REST:       &rest.Config{Host: "http://127.0.0.1:1"},
		Workers:    1,
		Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	require.Eventually(t, func() bool {
		return e.Ready() != nil && e.Ready().Error() != "not started"
	}, patience, poll)
	require.ErrorContains(t, e.Ready(), "find resource proxies in crawl.example.com/v1alpha1: discover the resources")
	cancel()
	require.NoError(t, <-done)
}

func TestRunWaitsForCRDs(t *testing.T) {
	cp := shared.Get(t)
	spec := manifestFor(t, "http://127.0.0.1:1")
	spec.Spec.ChildResources[1].Resource = "gadgets"
	e, err := New(Config{Controller: spec, REST: cp.RESTConfig(), Workers: 1})
	require.NoError(t, err)
	newCluster(t) // installs ours
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	require.Eventually(t, func() bool { return e.Ready().Error() != "not started" }, patience, poll)
	require.ErrorContains(t, e.Ready(), "find resource gadgets in crawl.example.com/v1alpha1: the API server does not serve it; is its CRD installed?")
	cancel()
	require.NoError(t, <-done)
}
