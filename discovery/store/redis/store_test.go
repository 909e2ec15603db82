package redis

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/storetest"
)

func TestMain(m *testing.M) {
	Quiet()
	goleak.VerifyTestMain(m)
}

var _ lease.Store = (*Store)(nil)

func TestStoreConforms(t *testing.T) {
	server := redistest.Start(t)
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T, clk *clocktesting.FakeClock) storetest.Subject {
		prefix := fmt.Sprintf("test-%d", n.Add(1))
		reopen := func(t *testing.T) lease.Store { return openLocal(t, server, prefix, clk) }
		return storetest.Subject{Store: reopen(t), Reopen: reopen}
	})
}

// configFor is for a store that waits for an answer of Redis as long as a busy
// machine may take.
func configFor(t *testing.T, server *redistest.Server, prefix string, clk clock.WithTicker) Config {
	t.Helper()
	o, _, err := ParseURL(server.URL())
	require.NoError(t, err)
	return Config{Options: o, Prefix: prefix, Cooldown: time.Minute, Clock: clk, Log: slog.New(slog.DiscardHandler), callTimeout: time.Minute}
}

// localFor is the same for a store with the time of clk, not of Redis.
func localFor(t *testing.T, server *redistest.Server, prefix string, clk clock.WithTicker) Config {
	t.Helper()
	cfg := configFor(t, server, prefix, clk)
	cfg.Cooldown, cfg.Limits, cfg.LocalTime = storetest.Window, storetest.Limits(), true
	return cfg
}

// openLocal returns a store with the time of clk.
func openLocal(t *testing.T, server *redistest.Server, prefix string, clk *clocktesting.FakeClock) *Store {
	t.Helper()
	s := Open(localFor(t, server, prefix, clk))
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
