package prober

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

const (
	// secretTTL is how long credentials are used before they are read again. A
	// proxy that refuses them has them read again at once.
	secretTTL = time.Minute
	// secretIdle is how long unused credentials stay in memory.
	secretIdle = 10 * time.Minute
)

// secretReader reads the credentials in one Secret.
type secretReader interface {
	Read(ctx context.Context, namespace, name string) (credentials.Credentials, error)
}

// secretCache keeps credentials for a short while, so that a fleet that shares a
// Secret does not have it read for each probe. While the API server is away,
// what was read last stays in use.
type secretCache struct {
	reader secretReader
	clock  clock.PassiveClock

	mu      sync.Mutex
	entries map[types.NamespacedName]*secretEntry
	swept   time.Time
}

type secretEntry struct {
	creds   credentials.Credentials
	fetched time.Time // zero: to be read again
	used    time.Time
}

func newSecretCache(reader secretReader, clk clock.PassiveClock) *secretCache {
	return &secretCache{reader: reader, clock: clk, entries: map[types.NamespacedName]*secretEntry{}, swept: clk.Now()}
}

// get returns the credentials in a Secret. The error is the reader's, and only
// there when nothing is known or the API server said no.
func (c *secretCache) get(ctx context.Context, key types.NamespacedName) (credentials.Credentials, error) {
	cached, fresh := c.look(key)
	if fresh {
		return cached.creds, nil
	}
	creds, err := c.reader.Read(ctx, key.Namespace, key.Name)
	switch {
	case err == nil:
		c.put(key, creds)
		return creds, nil
	case errors.Is(err, credentials.ErrRefused) || apierrors.IsForbidden(err):
		c.remove(key)
		return credentials.Credentials{}, err
	case cached != nil:
		return cached.creds, nil
	}
	return credentials.Credentials{}, err
}

// look returns a copy of the entry, nil when there is none, and whether it can be
// used without asking.
func (c *secretCache) look(key types.NamespacedName) (entry *secretEntry, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.sweep(now)
	e, ok := c.entries[key]
	if !ok {
		return nil, false
	}
	e.used = now
	found := *e
	return &found, !e.fetched.IsZero() && now.Sub(e.fetched) < secretTTL
}

func (c *secretCache) put(key types.NamespacedName, creds credentials.Credentials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.entries[key] = &secretEntry{creds: creds, fetched: now, used: now}
}

func (c *secretCache) remove(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}

// doubt has the credentials read again before their next use.
func (c *secretCache) doubt(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok {
		e.fetched = time.Time{}
	}
}

func (c *secretCache) sweep(now time.Time) {
	if now.Sub(c.swept) < secretIdle {
		return
	}
	c.swept = now
	for key, e := range c.entries {
		if now.Sub(e.used) >= secretIdle {
			delete(c.entries, key)
		}
	}
}
