// Package controlplane runs a real etcd and kube-apiserver on one loopback
// address, for laptops and tests: no cluster, no Docker, no root. It finds the
// programs, or builds them once from the Go modules in its sub-folders, whose
// go.mod files pin the versions.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

const (
	apiServerGrace = 10 * time.Second // the time that kube-apiserver has to drain its requests in flight
	etcdGrace      = 5 * time.Second  // the time that etcd has to close its data
)

// ControlPlane is a running etcd and kube-apiserver.
type ControlPlane struct {
	layout          *layout
	group           *supervise.Group
	etcd, apiServer *supervise.Part

	stopOnce sync.Once
	stopErr  error

	ended   chan struct{}
	endOnce sync.Once
	err     error // set before ended is closed
}

// Start starts a control plane and returns when it is ready and Pods can be created in the default
// namespace, after a few seconds on an idle machine. ctx cancels the start, not the control plane;
// Stop does that. After an error nothing is left running.
func Start(ctx context.Context, cfg Config) (*ControlPlane, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	if cfg.Assets == (Assets{}) {
		assets, err := Locate(ctx)
		if err != nil {
			return nil, err
		}
		cfg.Assets = assets
	}
	l, err := newLayout(cfg, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{layout: l, group: supervise.NewGroup(), ended: make(chan struct{})}
	ended := func(err error) {
		cfg.Log.Error("control plane ended by itself", "err", err)
		cp.end(err)
	}
	cp.etcd = &supervise.Part{Command: l.etcdCommand(cfg.Assets.Etcd, cfg.Durable), Group: cp.group, Ended: ended}
	cp.apiServer = &supervise.Part{Command: l.apiServerCommand(cfg.Assets.APIServer), Group: cp.group, Ended: ended}
	if err := cp.launch(ctx, cfg); err != nil {
		return nil, fmt.Errorf("start the control plane: %w", errors.Join(err, cp.Stop()))
	}
	return cp, nil
}

func (cp *ControlPlane) launch(ctx context.Context, cfg Config) error {
	began := time.Now()
	for _, p := range cp.Parts() {
		if err := p.Start(); err != nil {
			return err
		}
		p.Watch()
	}
	if err := cp.AwaitReady(ctx); err != nil {
		return err
	}
	cfg.Log.Info("control plane ready", "url", cp.URL(), "programs", cfg.Assets.Origin, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// Parts are etcd and the API server.
func (cp *ControlPlane) Parts() []*supervise.Part { return []*supervise.Part{cp.etcd, cp.apiServer} }

// end records once that the control plane has ended.
func (cp *ControlPlane) end(err error) {
	cp.endOnce.Do(func() {
		cp.err = err
		close(cp.ended)
	})
}

// Kubeconfig is the path of a kubeconfig file for the administrator. Only the
// owner can read it.
func (cp *ControlPlane) Kubeconfig() string { return cp.layout.path("kubeconfig") }

// URL of the API server.
func (cp *ControlPlane) URL() string { return cp.layout.url(cp.layout.apiPort) }

// RESTConfig returns a new client configuration for the administrator, without a
// rate limit.
func (cp *ControlPlane) RESTConfig() *rest.Config { return cp.layout.restConfig() }

// Addr is where the API server listens, as host:port.
func (cp *ControlPlane) Addr() string {
	return net.JoinHostPort(cp.layout.addr, strconv.Itoa(cp.layout.apiPort))
}

// ServiceIP is the address at which Pods expect the API server, on port 443. Its certificate covers
// it; the runner of Pods has to route it.
func ServiceIP() string { return serviceIP().String() }

// Authority is the path of the certificate that verifies the API server.
func (cp *ControlPlane) Authority() string { return cp.layout.path("ca.crt") }

// ServiceAccountKey is the path of the key that signs service account tokens.
func (cp *ControlPlane) ServiceAccountKey() string { return cp.layout.path("service-account.key") }

// Done is closed when the control plane ends, through Stop or by itself.
func (cp *ControlPlane) Done() <-chan struct{} { return cp.ended }

// Err is nil while the control plane runs and after Stop. After an unexpected exit it names the
// program and its log.
func (cp *ControlPlane) Err() error {
	select {
	case <-cp.ended:
		return cp.err
	default:
		return nil
	}
}

// Stop stops both programs and waits for their exit. Further calls return the first result. The
// folder stays.
func (cp *ControlPlane) Stop() error {
	cp.stopOnce.Do(func() {
		cp.end(nil)
		cp.group.Close()
		grace := apiServerGrace
		if cp.etcd.Current() != nil && cp.etcd.Exited() != nil {
			grace = 0 // no request in flight can finish without etcd, and the API server would wait for it
		}
		if p := cp.apiServer.Current(); p != nil {
			cp.stopErr = p.Stop(grace)
		}
		if p := cp.etcd.Current(); p != nil {
			cp.stopErr = errors.Join(cp.stopErr, p.Stop(etcdGrace))
		}
	})
	return cp.stopErr
}

// Config configures a control plane.
type Config struct {
	// Dir is its folder, created if missing, for data, keys, logs and the kubeconfig, readable for
	// the owner only. The data of an earlier control plane there is reused.
	Dir string
	// Addr is the loopback IP that everything listens on, such as 127.41.7.1,
	// on ports that are free there.
	Addr   string
	Assets Assets // the programs. Empty means those that Locate finds.
	// Durable makes etcd sync every write to disk, as in production. Without it starts and writes
	// are faster, and a power cut, though not a killed process, can lose data.
	Durable bool
	Log     *slog.Logger // receives starts and exits
}

// validate lists everything that is wrong.
func (c Config) validate() error {
	var errs []error
	if !filepath.IsAbs(c.Dir) {
		errs = append(errs, fmt.Errorf("folder %q: want an absolute path", c.Dir))
	}
	if ip := net.ParseIP(c.Addr); ip == nil || !ip.IsLoopback() {
		errs = append(errs, fmt.Errorf("address %q: want a loopback IP such as 127.41.7.1; the control plane must not be reachable from other machines", c.Addr))
	}
	if c.Log == nil {
		errs = append(errs, errors.New("no logger"))
	}
	return errors.Join(errs...)
}
