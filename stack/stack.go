// Package stack composes the local stack: a real control plane, our own
// processes, stand-ins for Metacontroller and the garbage collector, and the process node in place of a kubelet, all
// on loopback addresses of the stack's own.
package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/target"
)

// namespace of everything in the local stack.
const namespace = "default"

// Stack is a running local stack.
type Stack struct {
	cfg    Config
	folder *folder
	subnet *subnet
	// vmSubnet has the VMs of the Compute Engine stand-in.
	vmSubnet *subnet
	addrs    addresses
	token    string
	logDir   string
	podRoot  string

	controlPlane  *controlplane.ControlPlane
	target        *target.Target
	stopTarget    context.CancelFunc
	targetDone    chan error
	stopCollector func()   // stops the stand-in for the garbage collector and waits for it
	children      []*child // in their start order

	stopping sync.Once
	group    *supervise.Group
	failed   chan error // the first program of ours that exited by itself
}

// Start starts a stack and returns when all its parts are ready, after seconds. When it fails
// nothing is left running, and the error contains the folder of the logs.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Stack{cfg: cfg, token: rand.Text(), group: supervise.NewGroup(), failed: make(chan error, 1)}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(s.folder != nil && ctx.Err() == nil))
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.claim, s.startControlPlane, s.startCollector, s.startTarget, s.startPrograms} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for _, c := range s.children {
		c.Watch()
	}
	return nil
}

// claim reserves the folder, the subnets and the ports of this stack.
func (s *Stack) claim(context.Context) error {
	var err error
	if s.folder, err = newFolder(s.cfg.Home); err != nil {
		return err
	}
	if s.logDir, err = s.folder.sub("logs"); err != nil {
		return err
	}
	if s.podRoot, err = s.folder.sub(podsFolder); err != nil {
		return err
	}
	if s.subnet, err = claimSubnet(); err != nil {
		return err
	}
	if s.vmSubnet, err = claimSubnet(); err != nil {
		return err
	}
	return s.addrs.choose(s.subnet, len(s.cfg.discoveries()))
}

func (s *Stack) startControlPlane(ctx context.Context) error {
	began := time.Now()
	var err error
	s.controlPlane, err = controlplane.Start(ctx, controlplane.Config{
		Dir:    filepath.Join(s.folder.path, "controlplane"),
		Addr:   s.subnet.host(hostControlPlane).String(),
		Assets: s.cfg.Assets,
		Log:    s.cfg.Log,
	})
	if err != nil {
		return err
	}
	if err := controlplane.InstallCRDs(ctx, s.controlPlane.RESTConfig(), crd.Manifests()...); err != nil {
		return err
	}
	s.progress("API server %s is ready after %s", s.controlPlane.URL(), time.Since(began).Round(10*time.Millisecond))
	return nil
}

func (s *Stack) progress(format string, args ...any) {
	fmt.Fprintf(s.cfg.Progress, format+"\n", args...)
}

// Stop stops everything, in reverse start order, and removes the stack's folder, unless keep is
// set: then folder and logs stay. It can be called again.
func (s *Stack) Stop(keep bool) error {
	var errs []error
	s.stopping.Do(func() {
		s.group.Close()
		errs = append(errs, s.stopParts(), s.cleanUp(keep))
	})
	return errors.Join(errs...)
}

func (s *Stack) stopParts() error {
	var errs []error
	for _, c := range slices.Backward(s.children) {
		if err := c.Current().Stop(stopGrace); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", c.name, err))
		}
	}
	if s.stopTarget != nil {
		s.stopTarget()
		errs = append(errs, <-s.targetDone)
	}
	if s.stopCollector != nil {
		s.stopCollector()
	}
	if s.controlPlane != nil {
		errs = append(errs, s.controlPlane.Stop())
	}
	for _, claimed := range []*subnet{s.subnet, s.vmSubnet} {
		if claimed != nil {
			errs = append(errs, claimed.release())
		}
	}
	return errors.Join(errs...)
}

func (s *Stack) cleanUp(keep bool) error {
	switch {
	case s.folder == nil:
		return nil
	case keep:
		s.progress("logs are left in %s until the next stack starts", s.logDir)
		return s.folder.lock.Release()
	}
	return s.folder.remove()
}
