// Package redistest starts real Redis servers for tests.
package redistest

import (
	"errors"
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/stores"
)

// patience is for how long a server may not answer on a machine that is busy with
// other tests.
const patience = time.Minute

// Server is a redis-server (or valkey-server) on a unix socket.
type Server struct{ *stores.Redis }

// Start runs a server for the test, with more lines of configuration such as
// "appendonly yes". Without one on this machine the test is skipped, unless
// PX_REQUIRE_REDIS is 1.
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") // short: socket paths are limited
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	redis, err := stores.StartRedis(t.Context(), dir, config...)
	if errors.Is(err, stores.ErrNoRedis) && os.Getenv("PX_REQUIRE_REDIS") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = redis.Kill() })
	return &Server{redis}
}

// Client for looking at what the server holds.
func (s *Server) Client() *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Network: "unix", Addr: s.Socket(), MaxRetries: -1,
		ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
	})
}
