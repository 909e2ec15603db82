package credentials

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// idle is how long credentials that nobody asks for stay in memory, after they
// would have to be read again.
const idle = 10 * time.Minute

// Source is where a Cache reads from, as Reader does.
type Source interface {
	Read(ctx context.Context, namespace, name string) (Credentials, error)
}

// Cache remembers for a while what was read, so that a fleet that shares a Secret
// does not have it read for each probe and each lease. While the API server does
// not answer, what was read last stays in use, and only one caller at a time waits
// for it.
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
	until time.Time // when they are read again
}

// NewCache returns an empty Cache, which uses what it read for ttl. A changed
// Secret is in use after that.
func NewCache(source Source, ttl time.Duration, clk clock.PassiveClock) *Cache {
	return &Cache{source: source, ttl: ttl, clock: clk, entries: map[types.NamespacedName]*cached{}, swept: clk.Now()}
}

// Read returns what is remembered, or else asks. The error is the source's, and
// only there when nothing is remembered or the API server said no.
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

// Doubt has credentials that were refused somewhere read again before their next
// use: the Secret may have changed.
func (c *Cache) Doubt(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, known := c.entries[types.NamespacedName{Namespace: namespace, Name: name}]; known {
		e.until = c.clock.Now()
	}
}

// lookup finds what is remembered. Who finds it known and no longer fresh is to
// read it; it counts as fresh for all others meanwhile, so that only one waits for
// an API server that hangs.
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

func (c *Cache) remember(key types.NamespacedName, read Credentials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.sweep(now)
	c.entries[key] = &cached{Credentials: read, until: now.Add(c.ttl)}
}

// sweep forgets what nobody has asked for lately. The caller holds mu.
func (c *Cache) sweep(now time.Time) {
	if now.Sub(c.swept) < idle {
		return
	}
	c.swept = now
	for key, e := range c.entries {
		if now.Sub(e.until) >= idle {
			delete(c.entries, key)
		}
	}
}

func (c *Cache) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}
