package redis

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/redis/redistest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/storetest"
)

func TestMain(m *testing.M) {
	Quiet()
	goleak.VerifyTestMain(m)
}

var _ discovery.LeaseStore = (*Store)(nil)

func TestStoreConforms(t *testing.T) {
	server := redistest.Start(t)
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T, clk *clocktesting.FakeClock) storetest.Subject {
		prefix := fmt.Sprintf("test-%d", n.Add(1))
		reopen := func(t *testing.T) discovery.LeaseStore { return openLocal(t, server, prefix, clk) }
		return storetest.Subject{Store: reopen(t), Reopen: reopen}
	})
}

// openLocal returns a store that tells the time by clk.
func openLocal(t *testing.T, server *redistest.Server, prefix string, clk *clocktesting.FakeClock) *Store {
	t.Helper()
	return openLocalFor(t, server, prefix, clk, time.Minute)
}

// openLocalFor returns one that waits that long for an answer of Redis.
func openLocalFor(t *testing.T, server *redistest.Server, prefix string, clk *clocktesting.FakeClock, patience time.Duration) *Store {
	t.Helper()
	o, _, err := ParseURL(server.URL())
	require.NoError(t, err)
	s := Open(Config{
		Options: o, Prefix: prefix, Window: storetest.Window, Limits: storetest.Limits(), Clock: clk, LocalTime: true, Log: slog.New(slog.DiscardHandler),
		callTimeout: patience,
	})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
