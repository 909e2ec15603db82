package hooktest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/standin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream/upstreamtest"
)

// Driver calls the hooks and reconciles the children in their responses. The zero value is the
// stand-in.
type Driver struct {
	// Strategy of the real Metacontroller; empty for the stand-in.
	Strategy upstream.Strategy
}

// String names the driver in tests.
func (d Driver) String() string {
	if d.Real() {
		return string(d.Strategy)
	}
	return "standin"
}

// Real reports whether it is the real Metacontroller.
func (d Driver) Real() bool { return d.Strategy != "" }

// RealDrivers are the real Metacontroller under each of its strategies. The test is skipped when
// METACONTROLLER is not set.
func RealDrivers(t testing.TB) []Driver {
	t.Helper()
	upstreamtest.Program(t)
	var drivers []Driver
	for _, s := range upstream.Strategies() {
		drivers = append(drivers, Driver{Strategy: s})
	}
	return drivers
}

const workers = 20

// run drives c until stop is called.
func (d Driver) run(t testing.TB, cp *controlplane.ControlPlane, c *metacontroller.Controller) (stop func()) {
	t.Helper()
	if d.Real() {
		return upstreamtest.Run(t, cp, c, upstream.Options{Strategy: d.Strategy, Workers: workers})
	}
	e, err := standin.New(standin.Config{Controller: c, REST: cp.RESTConfig(), Workers: workers, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	for e.Ready() != nil {
		select {
		case err := <-done:
			done <- err
			t.Fatalf("the stand-in ended: %v", err)
		case <-time.After(poll):
		}
	}
	return stop
}
