package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/client-go/metadata"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/garbagecollector"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/target"
)

// startCollector starts the stand-in for the garbage collector.
func (s *Stack) startCollector(context.Context) error {
	client, err := metadata.NewForConfig(s.controlPlane.RESTConfig())
	if err != nil {
		return fmt.Errorf("client of the garbage collector: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { garbagecollector.New(client, s.cfg.Log).Run(ctx) })
	s.stopCollector = func() { cancel(); running.Wait() }
	return nil
}

func (s *Stack) startTarget(context.Context) error {
	var err error
	// Its log would be full of handshakes that probes have cut short.
	s.target, err = target.New(s.subnet.host(hostTarget).String(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	s.runTarget()
	return nil
}

func (s *Stack) runTarget() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stopTarget, s.targetDone = cancel, make(chan error, 1)
	go func() { s.targetDone <- s.target.Run(ctx) }()
}

// CloseTarget makes the probe target refuse connections, until OpenTarget. It must not run
// concurrently with Stop.
func (s *Stack) CloseTarget() error {
	if s.stopTarget == nil {
		return errors.New("the probe target is closed already")
	}
	s.stopTarget()
	s.stopTarget = nil
	return <-s.targetDone
}

// OpenTarget restarts the probe target at its address and with its certificate.
func (s *Stack) OpenTarget() error {
	again, err := s.target.Again()
	if err != nil {
		return err
	}
	s.target = again
	s.runTarget()
	return nil
}
