package redis

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

func TestSetupIsRefusedOrWarnedAbout(t *testing.T) {
	tests := map[string]struct {
		setup   setup
		refused string
		warned  string
	}{
		"durable":                 {setup: setup{policy: "noeviction", limited: true, appendOnly: "1", fsync: "always"}},
		"evicts keys that expire": {setup: setup{policy: "volatile-lru", limited: true, appendOnly: "1", fsync: "always"}},
		"evicts any key":          {setup: setup{policy: "allkeys-lru", limited: true, appendOnly: "1"}, refused: "its maxmemory-policy is allkeys-lru", warned: "allkeys-lru"},
		"would evict any key":     {setup: setup{policy: "allkeys-lfu", appendOnly: "1"}, warned: "set noeviction before maxmemory is set"},
		"no append-only file":     {setup: setup{policy: "noeviction", appendOnly: "0"}, warned: "appendonly is off"},
		"no fsync":                {setup: setup{policy: "noeviction", appendOnly: "1", fsync: "no"}, warned: "appendfsync is no"},
		"INFO is forbidden":       {setup: setup{unchecked: errors.New("NOPERM")}, warned: "its configuration cannot be read (NOPERM)"},
		"CONFIG is forbidden":     {setup: setup{policy: "noeviction"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.refused == "" {
				assert.NoError(t, tt.setup.unusable())
			} else {
				assert.ErrorContains(t, tt.setup.unusable(), tt.refused)
			}
			if tt.warned == "" {
				assert.Empty(t, tt.setup.warnings())
				return
			}
			require.Len(t, tt.setup.warnings(), 1)
			assert.Contains(t, tt.setup.warnings()[0], tt.warned)
		})
	}
}

func TestRedisThatEvictsKeysIsRefusedUntilReconfigured(t *testing.T) {
	server := redistest.Start(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 1), 1)[0]
	_, err := s.Acquire(t.Context(), anyProxy())
	require.ErrorIs(t, err, lease.ErrUnavailable)
	assert.ErrorContains(t, err, "set maxmemory-policy to noeviction, no restart is needed")
	s.poll(t.Context())
	require.ErrorContains(t, s.Ready(), "maxmemory-policy is allkeys-lru")
	c := server.Client()
	defer func() { _ = c.Close() }()
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	s.poll(t.Context())
	require.NoError(t, s.Ready())
	_, err = s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err)

	// Later changes do not stop the service.
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	s.poll(t.Context())
	require.NoError(t, s.Ready())
}

// A Redis that replaces another is inspected like the first.
func TestRedisAfterFailoverIsRefusedWhenItEvictsKeys(t *testing.T) {
	for name, knows := range map[string]bool{"replicated": true, "empty": false} {
		t.Run(name, func(t *testing.T) {
			host := controlplanetest.Addr()
			first := redistest.Start(t, "bind "+host, "port "+followed, "repl-diskless-sync-delay 0")
			setup := []string{"maxmemory 100mb", "maxmemory-policy allkeys-lru"}
			if knows {
				setup = append(setup, "replicaof "+host+" "+followed)
			}
			second := redistest.Start(t, setup...)
			s := replicas(t, first, clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), fleet(1, 2), 1)[0]
			l, err := s.Acquire(t.Context(), anyProxy())
			require.NoError(t, err)
			takePlace(t, first, second, knows)

			s.poll(t.Context()) // connects
			s.poll(t.Context())
			require.ErrorContains(t, s.Ready(), "maxmemory-policy is allkeys-lru")
			_, err = s.Acquire(t.Context(), anyProxy())
			require.ErrorIs(t, err, lease.ErrUnavailable)

			c := first.Client() // connects to second now
			defer func() { _ = c.Close() }()
			require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
			s.poll(t.Context())
			require.NoError(t, s.Ready())
			_, err = s.Renew(t.Context(), l.ID, 2*time.Minute)
			require.NoError(t, err, "a held lease survives")
		})
	}
}

// takePlace has connections to first reach second, which may be a replica of it.
func takePlace(t *testing.T, first, second *redistest.Server, follows bool) {
	t.Helper()
	if follows {
		c, standby := first.Client(), second.Client()
		defer func() { _, _ = c.Close(), standby.Close() }()
		require.Eventually(t, func() bool {
			n, err := c.Wait(t.Context(), 1, time.Second).Result()
			return err == nil && n == 1
		}, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, standby.ReplicaOf(t.Context(), "no", "one").Err())
	}
	require.NoError(t, first.Kill())
	require.NoError(t, os.Rename(second.Socket(), first.Socket()))
}

func TestConfigurationChangeOfRedisInUseIsLoggedOnce(t *testing.T) {
	server := redistest.Start(t, "maxmemory 100mb", "appendonly yes")
	var log bytes.Buffer
	s := openLocal(t, server, t.Name(), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)))
	s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.poll(t.Context())
	c := server.Client()
	defer func() { _ = c.Close() }()
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	for range 3 {
		require.NoError(t, c.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
		s.poll(t.Context()) // connects
		s.poll(t.Context())
		require.NoError(t, s.Ready())
	}
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("its maxmemory-policy is allkeys-lru")), log.String())
}

// A Redis that does not answer INFO, as during a slow script, is the same one afterwards.
func TestRedisTooBusyForInfoIsNotAnotherRedis(t *testing.T) {
	server := redistest.Start(t, "maxmemory 100mb", "user operator on >secret ~* &* +@all")
	s := openLocal(t, server, t.Name(), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)))
	s.poll(t.Context())
	o, _, err := ParseURL(server.URL())
	require.NoError(t, err)
	o.Username, o.Password = "operator", "secret"
	c := goredis.NewClient(o)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	for _, rights := range []string{"-info", "+info"} {
		require.NoError(t, c.Do(t.Context(), "ACL", "SETUSER", "default", rights).Err())
		require.NoError(t, c.Do(t.Context(), "CLIENT", "KILL", "USER", "default").Err())
		s.poll(t.Context()) // connects
		s.poll(t.Context())
		require.NoError(t, s.Ready(), rights)
	}
}

// Managed services forbid CONFIG, and some even INFO.
func TestRedisThatForbidsCommandsIsUsed(t *testing.T) {
	tests := map[string]struct{ acl, warned string }{
		"CONFIG":          {"-config", "appendonly is off"},
		"CONFIG and INFO": {"-config -info", "its configuration cannot be read (NOPERM"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, "user default on nopass ~* &* +@all "+tt.acl)
			var log bytes.Buffer
			clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
			s := openLocal(t, server, t.Name(), clk)
			s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			s.Offer(fleet(1, 1))
			_, err := s.Acquire(t.Context(), anyProxy())
			require.NoError(t, err)
			assert.Contains(t, log.String(), tt.warned)
			require.NoError(t, s.sync(t.Context()))
			assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("Redis may lose leases")), log.String())
		})
	}
}
