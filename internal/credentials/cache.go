package credentials

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// idle is how long stale credentials stay in the cache without a read.
const idle = 10 * time.Minute

// Source reads credentials, as Reader does.
type Source interface {
	Read(ctx context.Context, namespace, name string) (Credentials, error)
}

// Cache caches credentials for a TTL, so that a fleet that shares a Secret does not read
// it for each probe and each lease. While the API server does not respond, stale
// credentials stay in use, and only one caller at a time waits for it.
type Cache struct {
	source Source
	ttl    time.Duration
	clock  clock.PassiveClock

	mu      sync.Mutex
	entries map[types.NamespacedName]*cached
	swept   time.Time
}

type cached struct {
	Credentials
	until time.Time // stale from then on
}

// NewCache returns an empty Cache. A changed Secret is in use after at most ttl.
func NewCache(source Source, ttl time.Duration, clk clock.PassiveClock) *Cache {
	return &Cache{source: source, ttl: ttl, clock: clk, entries: map[types.NamespacedName]*cached{}, swept: clk.Now()}
}

// Read returns cached credentials or reads them. It returns the source's error when
// nothing is cached, or the credentials were refused.
func (c *Cache) Read(ctx context.Context, namespace, name string) (Credentials, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	last, known, fresh := c.lookup(key)
	if fresh {
		return last, nil
	}
	read, err := c.source.Read(ctx, namespace, name)
	switch {
	case err == nil:
		c.remember(key, read)
		return read, nil
	case errors.Is(err, ErrRefused) || apierrors.IsForbidden(err):
		c.forget(key)
		return Credentials{}, err
	case known:
		return last, nil
	}
	return Credentials{}, err
}

// Doubt marks cached credentials as stale after a proxy refused them: the Secret may have
// changed.
func (c *Cache) Doubt(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, known := c.entries[types.NamespacedName{Namespace: namespace, Name: name}]; known {
		e.until = c.clock.Now()
	}
}

// lookup returns the cached credentials. The caller that gets stale ones must read them;
// for all other callers they are fresh meanwhile, so that only one waits for an API
// server that hangs.
func (c *Cache) lookup(key types.NamespacedName) (last Credentials, known, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known := c.entries[key]
	if !known {
		return Credentials{}, false, false
	}
	now := c.clock.Now()
	if fresh = now.Before(e.until); !fresh {
		e.until = now.Add(c.ttl)
	}
	return e.Credentials, true, fresh
}

// remember caches what was read and evicts idle credentials.
func (c *Cache) remember(key types.NamespacedName, read Credentials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if now.Sub(c.swept) >= idle {
		c.swept = now
		maps.DeleteFunc(c.entries, func(_ types.NamespacedName, e *cached) bool { return now.Sub(e.until) >= idle })
	}
	c.entries[key] = &cached{Credentials: read, until: now.Add(c.ttl)}
}

func (c *Cache) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}
