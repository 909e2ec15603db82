package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/storetest"
)

// Damage to a file in use makes the store unavailable for a moment and loses nothing: the
// file is rewritten from memory.
func TestFileDamagedWhileInUseIsRewrittenFromMemory(t *testing.T) {
	tests := map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 100) },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".other", []byte("My diary.\n"), 0o600), os.Rename(path+".other", path))
		},
		"replaced by an older one": func(path string) error {
			return errors.Join(os.Remove(path), ensureFile(path, true))
		},
		"overwritten": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.Write(make([]byte, 16*os.Getpagesize()))
			return errors.Join(err, f.Close())
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			clk := newClock()
			cfg := testConfig(filepath.Join(t.TempDir(), "leases"), clk)
			s := open(t, cfg)
			offer(s, 20, 1)
			held, err := s.Acquire(t.Context(), lease.Request{TTL: time.Hour, Session: "s", Key: "k"})
			require.NoError(t, err)
			require.NoError(t, s.Report(t.Context(), held.ID, lease.Report{Result: lease.ResultBanned, Target: "x"}))
			require.NoError(t, damage(cfg.Path))
			_, err = s.Acquire(t.Context(), lease.Request{TTL: time.Hour})
			require.ErrorIs(t, err, lease.ErrUnavailable)
			require.Eventually(t, func() bool { clk.Step(retryInterval); return s.Ready() == nil }, 20*time.Second, 5*time.Millisecond)
			check := func(s *Store) {
				got, err := s.Get(t.Context(), held.ID)
				require.NoError(t, err)
				assert.False(t, got.ExpiresAt.Before(held.ExpiresAt))
				u, err := s.Usage(t.Context())
				require.NoError(t, err)
				assert.Equal(t, 1, u.Total(), "what was refused does not count")
				again, err := s.Acquire(t.Context(), lease.Request{TTL: time.Hour, Session: "s", Key: "k"})
				require.NoError(t, err)
				assert.Equal(t, held.ID, again.ID)
			}
			check(s)
			crash(t, s)
			s = open(t, cfg)
			offer(s, 20, 1)
			check(s)
			_, err = s.Acquire(t.Context(), lease.Request{TTL: time.Hour, Target: "x", Exclude: allBut(held.Proxy)})
			var none *lease.NoMatchError
			require.ErrorAs(t, err, &none)
			assert.Equal(t, 1, none.InCooldown)
		})
	}
}

func TestFileCreationIsAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "leases")
	require.NoError(t, os.WriteFile(path+newInfix+"left-by-a-crash", nil, 0o600))
	s := open(t, testConfig(path, newClock()))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "%v", entries)
	info, err := entries[0].Info()
	require.NoError(t, err)
	assert.Equal(t, "-rw-------", info.Mode().String())
	require.NoError(t, s.Close())

	// The second process uses the existing file.
	other, err := makeFile(path, true, newBatch(timeline{}), storedMeta{Fence: 7})
	require.NoError(t, err)
	before, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, publish(other, path))
	after, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))
}

// The process may crash at every step of the creation.
func TestCrashDuringCreationLeavesNoRefusedFile(t *testing.T) {
	for cut := range 9 {
		path := filepath.Join(t.TempDir(), "leases")
		name, err := makeFile(path, true, newBatch(timeline{}), storedMeta{})
		require.NoError(t, err)
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(name, int64(len(raw)*cut/8)))
		s, err := Open(testConfig(path, newClock()))
		require.NoError(t, err, "%d", cut)
		require.NoError(t, s.Close())
	}
}

func TestFileRestoresTheLedgerState(t *testing.T) {
	s := open(t, testConfig(filepath.Join(t.TempDir(), "leases"), newClock()))
	offer(s, 5, 9)
	for i := range 10 {
		l, err := s.Acquire(t.Context(), lease.Request{TTL: time.Hour, Session: fmt.Sprint(i % 3), Key: fmt.Sprint(i), Target: "a"})
		require.NoError(t, err)
		require.NoError(t, s.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned, Target: fmt.Sprint(i)}))
	}
	require.NoError(t, s.Close()) // the ledger is this test's alone
	before := s.ledger.State()
	s.ledger.Reset(before)
	after := s.ledger.State()
	assert.ElementsMatch(t, before.Leases, after.Leases)
	assert.ElementsMatch(t, before.Cooldowns, after.Cooldowns)
	assert.ElementsMatch(t, before.Sessions, after.Sessions)
	assert.Equal(t, before.Fence, after.Fence)
	assert.Len(t, after.Leases, 10)
	assert.Len(t, after.Cooldowns, 10)
	assert.Len(t, after.Sessions, 3)
	assert.Equal(t, storetest.Window, s.cfg.Cooldown)
}
