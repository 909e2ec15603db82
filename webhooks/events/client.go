package events

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Bounds on what the API server is asked: a whole fleet that flips is told of in
// minutes, and nobody else is kept waiting for it.
const (
	callsPerSecond = 10
	callsAtOnce    = 50
)

// Client returns the API of Events on a copy of cfg, and what closes its
// connections. It does not call the API server.
func Client(cfg *rest.Config) (api v1.EventsGetter, closeIdle func(), err error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst, cfg.Timeout = callsPerSecond, callsAtOnce, callTimeout
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for Events: %w", err)
	}
	core, err := v1.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for Events: %w", err)
	}
	return core, closer(client), nil
}

func closer(client *http.Client) func() { return client.CloseIdleConnections }
