package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/filelock"
)

// lockPoll is the poll interval of a builder that waits for another one.
const lockPoll = 200 * time.Millisecond

// cache is the folder that one set of sources is built into. It holds a program
// under its name only when that program is whole.
type cache struct {
	sources sources
	dir     string
}

func openCache() (cache, error) {
	src, err := findSources()
	if err != nil {
		return cache{}, err
	}
	root, err := cacheRoot()
	if err != nil {
		return cache{}, err
	}
	return cache{sources: src, dir: filepath.Join(root, src.key())}, nil
}

func cacheRoot() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("%s=%s: %w", CacheEnv, dir, err)
		}
		return abs, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder to build the control plane into: %w; set HOME or %s", err, CacheEnv)
	}
	return filepath.Join(dir, "egress-proxies-operator"), nil
}

// assets returns the programs when all are there.
func (c cache) assets() (Assets, bool) {
	assets, missing := inFolder(c.dir)
	assets.Origin = "built from source"
	return assets, len(missing) == 0
}

// lock creates the folder and locks it for one builder, also across processes, until it is released
// or this process ends. waiting is called once when another builder holds it.
func (c cache) lock(ctx context.Context, waiting func()) (*filelock.Lock, error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache folder: %w; set %s to a folder that you can write to", err, CacheEnv)
	}
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for first := true; ; first = false {
		lock, err := filelock.Try(filepath.Join(c.dir, ".lock"))
		if err == nil || !errors.Is(err, filelock.ErrHeld) {
			return lock, err
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another build into %s: %w", c.dir, ctx.Err())
		case <-ticker.C:
		}
	}
}
