package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/filelock"
)

func testCache(t *testing.T) cache {
	t.Helper()
	c, err := openCache()
	require.NoError(t, err)
	c.dir = filepath.Join(t.TempDir(), "key")
	return c
}

func noWait() {}

func TestLockExcludesOthers(t *testing.T) {
	c := testCache(t)
	var holders, most atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			lock, err := c.lock(t.Context(), noWait)
			if !assert.NoError(t, err) {
				return
			}
			defer func() { assert.NoError(t, lock.Release()) }()
			now := holders.Add(1)
			if now > most.Load() {
				most.Store(now)
			}
			assert.NoError(t, os.WriteFile(filepath.Join(c.dir, "held"), nil, 0o600))
			holders.Add(-1)
		})
	}
	all.Wait()
	assert.EqualValues(t, 1, most.Load())
}

func TestLockReportsOnceThatItWaits(t *testing.T) {
	c := testCache(t)
	lock, err := c.lock(t.Context(), func() { t.Error("nobody holds it yet") })
	require.NoError(t, err)

	waiting := make(chan struct{}, 10)
	locked := make(chan *filelock.Lock)
	go func() {
		second, err := c.lock(t.Context(), func() { waiting <- struct{}{} })
		assert.NoError(t, err)
		locked <- second
	}()
	<-waiting
	select {
	case <-locked:
		t.Fatal("two hold the lock")
	default:
	}
	require.NoError(t, lock.Release())
	require.NoError(t, (<-locked).Release())
	assert.Empty(t, waiting)
}

func TestLockEndsWithTheContext(t *testing.T) {
	c := testCache(t)
	lock, err := c.lock(t.Context(), noWait)
	require.NoError(t, err)
	defer func() { assert.NoError(t, lock.Release()) }()

	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.lock(ctx, cancel)

	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, c.dir)
}

func TestLockNeedsAFolderThatCanBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := cache{dir: filepath.Join(file, "key")}.lock(t.Context(), noWait)
	assert.ErrorContains(t, err, "set "+CacheEnv)
}
