package redis

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
)

// age has a store run the scripts of testdata/uncounted, those of the last release
// that did not count records.
func age(s *Store) { s.scripts = newScripts(os.DirFS("testdata"), "uncounted") }

// While replicas are replaced one by one, those of the release before write to the
// same Redis. Nothing is taken for lost, put back or refused for that.
func TestReplicasOfTheReleaseBeforeGoOnBesideThisOne(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(5, 100), 2)
	before, now := s[0], s[1]
	age(before)
	req := anyProxy()
	req.TTL = time.Hour
	var held []lease.Lease
	acquire := func(s *Store) {
		l, err := s.Acquire(t.Context(), req)
		require.NoError(t, err)
		held = append(held, l)
	}
	for range 20 {
		acquire(before)
	}
	generation := before.generation
	for range 10 {
		acquire(now)
		acquire(before)
		require.NoError(t, now.Release(t.Context(), held[0].ID), "the other's")
		require.NoError(t, before.Release(t.Context(), held[1].ID))
		require.NoError(t, before.Release(t.Context(), held[2].ID))
		held = held[3:]
		_, err := before.Renew(t.Context(), held[0].ID, 2*time.Hour)
		require.NoError(t, err)
	}
	for _, l := range held {
		_, err := now.Get(t.Context(), l.ID)
		require.NoError(t, err)
	}
	require.NoError(t, before.Release(t.Context(), held[0].ID), "there are none left that it knows of")
	for _, s := range s {
		require.NoError(t, s.sync(t.Context()))
		assert.Zero(t, s.Losses())
		assert.Equal(t, generation, s.generation)
		require.NoError(t, s.mirror.Check())
	}
}

// What gets lost is noticed all the same, as soon as a replica of this release has
// looked at what the other did.
func TestALossIsNoticedAfterTheReleaseBefore(t *testing.T) {
	for name, after := range map[string]func(before, now *Store) error{
		"it was followed": func(_, now *Store) error { return now.sync(t.Context()) },
		"another lease": func(_, now *Store) error {
			_, err := now.Acquire(t.Context(), anyProxy())
			return err
		},
		"it has mended": func(before, now *Store) error {
			if err := before.eval(t.Context(), before.scripts.mended).Err(); err != nil {
				return err
			}
			return now.sync(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			c := server.Client()
			defer func() { _ = c.Close() }()
			clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
			s := replicas(t, server, clk, fleet(5, 100), 2)
			before, now := s[0], s[1]
			age(before)
			l, err := before.Acquire(t.Context(), anyProxy())
			require.NoError(t, err)
			require.NoError(t, now.sync(t.Context()))
			_, err = before.Acquire(t.Context(), anyProxy())
			require.NoError(t, err)
			require.NoError(t, after(before, now))

			require.NoError(t, c.Del(t.Context(), now.key+":leases", now.key+":due").Err())
			_, err = now.Acquire(t.Context(), anyProxy())
			require.ErrorIs(t, err, lease.ErrUnavailable, "leases are put back")
			_, err = now.Renew(t.Context(), l.ID, time.Hour)
			require.NoError(t, err)
		})
	}
}
