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
	dir  string
	what string // is built there
	// targets are in the order of building.
	targets []target
}

// openCache is the cache of the control plane.
func openCache() (cache, error) {
	kubernetes, err := findSource("kubernetes", kubernetesModule)
	if err != nil {
		return cache{}, err
	}
	etcd, err := findSource("etcd", etcdModule)
	if err != nil {
		return cache{}, err
	}
	// The quick one first, so that what is wrong with the toolchain or the network shows early.
	targets := []target{{binary: Etcd, pkg: etcdModule, source: etcd, ldflags: "-s -w"}}
	return newCache(key(kubernetes, etcd), "the control plane", append(targets, kubernetes.kubernetes(APIServer, kubectlBinary)...))
}

func newCache(key, what string, targets []target) (cache, error) {
	root, err := cacheRoot()
	return cache{dir: filepath.Join(root, key), what: what, targets: targets}, err
}

func (c cache) path(name string) string { return filepath.Join(c.dir, name) }

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
		lock, err := filelock.Try(c.path(".lock"))
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
