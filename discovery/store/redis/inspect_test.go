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

func TestSetups(t *testing.T) {
	tests := map[string]struct {
		setup   setup
		refused string
		warned  string
	}{
		"as it should be":        {setup: setup{policy: "noeviction", limited: true, appendOnly: "1", fsync: "always"}},
		"our keys never expire":  {setup: setup{policy: "volatile-lru", limited: true, appendOnly: "1", fsync: "always"}},
		"it drops what we keep":  {setup: setup{policy: "allkeys-lru", limited: true, appendOnly: "1"}, refused: "its maxmemory-policy is allkeys-lru", warned: "allkeys-lru"},
		"it would":               {setup: setup{policy: "allkeys-lfu", appendOnly: "1"}, warned: "set noeviction before anybody sets maxmemory"},
		"it keeps nothing":       {setup: setup{policy: "noeviction", appendOnly: "0"}, warned: "appendonly is off"},
		"it keeps little":        {setup: setup{policy: "noeviction", appendOnly: "1", fsync: "no"}, warned: "appendfsync is no"},
		"it tells nothing":       {setup: setup{unchecked: errors.New("NOPERM")}, warned: "it does not tell how it is set up (NOPERM)"},
		"it tells only a little": {setup: setup{policy: "noeviction"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.refused == "" {
				assert.NoError(t, tt.setup.refusal())
			} else {
				assert.ErrorContains(t, tt.setup.refusal(), tt.refused)
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

// A Redis that drops leases is not used, until somebody sets it right.
func TestRedisThatDropsKeysIsRefusedUntilItDoesNot(t *testing.T) {
	server := redistest.Start(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 1), 1)[0]
	_, err := s.Acquire(t.Context(), anyProxy())
	require.ErrorIs(t, err, lease.ErrUnavailable)
	assert.ErrorContains(t, err, "set maxmemory-policy to noeviction, and it is used without a restart")
	s.follow(t.Context())
	require.ErrorContains(t, s.Ready(), "maxmemory-policy is allkeys-lru")
	c := server.Client()
	defer func() { _ = c.Close() }()
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	s.follow(t.Context())
	require.NoError(t, s.Ready())
	_, err = s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err)

	// Later changes end no service that runs.
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	s.follow(t.Context())
	require.NoError(t, s.Ready())
}

// One that takes the place of another is looked at like the first, whether it knows the
// leases or not.
func TestRedisThatTakesAnothersPlaceIsRefusedWhenItDropsKeys(t *testing.T) {
	for name, knows := range map[string]bool{"with the leases": true, "with none": false} {
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

			s.follow(t.Context()) // connects
			s.follow(t.Context())
			require.ErrorContains(t, s.Ready(), "maxmemory-policy is allkeys-lru")
			_, err = s.Acquire(t.Context(), anyProxy())
			require.ErrorIs(t, err, lease.ErrUnavailable)

			c := first.Client() // that reaches the second now
			defer func() { _ = c.Close() }()
			require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
			s.follow(t.Context())
			require.NoError(t, s.Ready())
			_, err = s.Renew(t.Context(), l.ID, 2*time.Minute)
			require.NoError(t, err, "a lease that is held goes on")
		})
	}
}

// takePlace has whoever connects to first reach second, which follows it or does not.
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
	first.Kill()
	require.NoError(t, os.Rename(second.Socket(), first.Socket()))
}

// What one in use is changed to is told once, and ends no service.
func TestRedisThatIsSetUpAnewIsTold(t *testing.T) {
	server := redistest.Start(t, "maxmemory 100mb", "appendonly yes")
	var log bytes.Buffer
	s := openLocal(t, server, t.Name(), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)))
	s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.follow(t.Context())
	c := server.Client()
	defer func() { _ = c.Close() }()
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	for range 3 {
		require.NoError(t, c.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
		s.follow(t.Context()) // connects
		s.follow(t.Context())
		require.NoError(t, s.Ready())
	}
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("its maxmemory-policy is allkeys-lru")), log.String())
}

// One that does not say for a while who it is, as while a script takes long, is not
// another one afterwards.
func TestRedisThatIsTooBusyToTellIsTheSame(t *testing.T) {
	server := redistest.Start(t, "maxmemory 100mb", "user operator on >secret ~* &* +@all")
	s := openLocal(t, server, t.Name(), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)))
	s.follow(t.Context())
	o, _, err := ParseURL(server.URL())
	require.NoError(t, err)
	o.Username, o.Password = "operator", "secret"
	c := goredis.NewClient(o)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	for _, rights := range []string{"-info", "+info"} {
		require.NoError(t, c.Do(t.Context(), "ACL", "SETUSER", "default", rights).Err())
		require.NoError(t, c.Do(t.Context(), "CLIENT", "KILL", "USER", "default").Err())
		s.follow(t.Context()) // connects
		s.follow(t.Context())
		require.NoError(t, s.Ready(), rights)
	}
}

// As managed ones are: they forbid CONFIG, and some even INFO.
func TestRedisThatForbidsCommandsIsUsed(t *testing.T) {
	tests := map[string]struct{ acl, warned string }{
		"CONFIG":          {"-config", "appendonly is off"},
		"CONFIG and INFO": {"-config -info", "it does not tell how it is set up (NOPERM"},
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
