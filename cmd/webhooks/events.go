package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/events"
)

// recordEvents prepares to send Events. Nobody who has not named a kubeconfig needs
// them: without an API server the hooks work, and say once that there are none.
func (p *process) recordEvents(o options, reg prometheus.Registerer) error {
	if !o.events {
		return nil
	}
	cfg, err := kube.Config(o.Kubeconfig, "egress-proxies-webhooks")
	switch {
	case err != nil && o.Kubeconfig != "":
		return err
	case errors.Is(err, rest.ErrNotInCluster):
		p.log.Info("no Events are sent: no --kubeconfig, and this is no Pod")
		return nil
	case err != nil:
		p.log.Warn("no Events are sent: mount the Pod's token, or say --events=false", "err", err)
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the host's name, which Events tell: %w", err)
	}
	api, closeIdle, err := events.Client(cfg)
	if err != nil {
		return err
	}
	p.events, p.closeEvents = events.New(events.Options{API: api, Instance: host, Clock: clock.RealClock{}, Log: p.log, Registry: reg}), closeIdle
	return nil
}
