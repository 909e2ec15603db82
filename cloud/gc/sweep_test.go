package gc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func TestFailedListSkipsTheSweep(t *testing.T) {
	b := newHarness(t, nil)
	b.vm(zoneB, "dead", nil)
	b.sweep()
	b.gce.AddFault(gcestandin.Fault{Op: "list", Count: 1, Status: 500})
	b.sweep()
	assert.Equal(t, "failed 0 0", b.results[1])
	assert.Len(t, b.left(), 1)
}

func TestDryRunLogsOrphansAndKeepsThem(t *testing.T) {
	b := newHarness(t, func(c *Config) { c.DryRun = true })
	b.vm(zoneB, "dead", nil)
	b.sweep()
	b.sweep()
	b.sweep()
	assert.Len(t, b.left(), 1)
	assert.Empty(t, b.forgotten)
	assert.Contains(t, b.log.String(), "would be deleted")
	assert.Equal(t, "done 1 0", b.results[2])
}

func TestInstanceChangedSinceTheListIsKept(t *testing.T) {
	tests := map[string]func(*harness){
		"another UID":   func(b *harness) { _ = b.gce.Relabel(zoneB, "proxy-dead", map[string]string{gcp.LabelUID: "x"}) },
		"being deleted": func(b *harness) { _ = b.gce.SetStatus(zoneB, "proxy-dead", "STOPPING") },
		"gone":          func(b *harness) { _ = b.gce.Remove(zoneB, "proxy-dead") },
		"unreadable":    func(b *harness) { b.gce.AddFault(gcestandin.Fault{Op: "get", Status: 403}) },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, nil)
			b.vm(zoneB, "dead", nil)
			b.sweep()
			// Between the list and the read before the delete, while Proxies are
			// listed.
			b.cfg.Proxies = uidsFunc(func() (map[string]bool, error) { happens(b); return nil, nil })
			b.sweep()
			assert.Equal(t, "done 1 0", b.results[1])
			assert.Empty(t, b.forgotten)
			for _, c := range b.gce.Calls() {
				assert.NotEqual(t, "delete", c.Op)
			}
		})
	}
}

type uidsFunc func() (map[string]bool, error)

func (f uidsFunc) UIDs(context.Context) (map[string]bool, error) { return f() }

// A Proxy that is made during the sweep is found: instances are listed first.
func TestProxiesAreListedAfterInstances(t *testing.T) {
	b := newHarness(t, nil)
	listed := false
	b.cfg.Proxies = uidsFunc(func() (map[string]bool, error) {
		listed = len(b.gce.Calls()) == 1
		return nil, nil
	})
	b.sweep()
	assert.True(t, listed)
}

func TestRefusedDeleteIsRetriedByTheNextSweep(t *testing.T) {
	b := newHarness(t, nil)
	b.vm(zoneB, "dead", nil)
	require.NoError(t, b.gce.Protect(zoneB, "proxy-dead", true))
	b.sweep()
	b.sweep()
	assert.Equal(t, "done 1 0", b.results[1])
	require.NoError(t, b.gce.Protect(zoneB, "proxy-dead", false))
	b.sweep()
	assert.Empty(t, b.left())
}

func TestAccountsAreSweptOnce(t *testing.T) {
	b := newHarness(t, nil)
	b.cfg.Providers = append(b.cfg.Providers, b.cfg.Providers[0])
	b.sweep()
	assert.Len(t, b.gce.Calls(), 1)
}

func TestRunSweepsEachIntervalAndNotBefore(t *testing.T) {
	b := newHarness(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan struct{}, 10)
	b.cfg.Proxies = uidsFunc(func() (map[string]bool, error) { swept <- struct{}{}; return nil, nil })
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	require.Eventually(t, b.clock.HasWaiters, 5*time.Second, time.Millisecond)
	b.clock.Step(9 * time.Minute)
	assert.Empty(t, swept)
	b.clock.Step(time.Minute)
	<-swept
	cancel()
	<-done
}

func TestThrottleEndsWithItsContext(t *testing.T) {
	b := newHarness(t, func(c *Config) { c.Bucket = provider.NewBucket(0.001, 1) })
	assert.True(t, b.throttle(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { done <- b.throttle(ctx) }()
	require.Eventually(t, b.clock.HasWaiters, 5*time.Second, time.Millisecond)
	cancel()
	assert.False(t, <-done)
}
