package redistest

import (
	"context"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// Part is what a store keeps under one kind of key, such as all :running:INSTANCE.
type Part struct {
	// Keys of that kind, and the Entries in them.
	Keys, Entries int64
}

// Parts lists what a store keeps one entry of for each of something, in one key or in
// several, and the log. The rest are two numbers.
func Parts() []string {
	return []string{"leases", "running", "ends", "keys", "sessions", "of", "cooling", "count", "due", "log"}
}

// Census counts what a store keeps under a prefix, by kind of key.
func Census(ctx context.Context, c *goredis.Client, prefix string) (map[string]Part, error) {
	parts := map[string]Part{}
	keys := c.Scan(ctx, 0, "{"+prefix+"}:*", 1000).Iterator()
	for keys.Next(ctx) {
		name, _, _ := strings.Cut(strings.TrimPrefix(keys.Val(), "{"+prefix+"}:"), ":")
		n, err := entries(ctx, c, keys.Val())
		if err != nil {
			return nil, err
		}
		parts[name] = Part{Keys: parts[name].Keys + 1, Entries: parts[name].Entries + n}
	}
	if err := keys.Err(); err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return parts, nil
}

// entries counts those of a key, 1 for a string.
func entries(ctx context.Context, c *goredis.Client, key string) (int64, error) {
	kind, err := c.Type(ctx, key).Result()
	if err != nil {
		return 0, fmt.Errorf("type of %s: %w", key, err)
	}
	count := map[string]func(context.Context, string) *goredis.IntCmd{"hash": c.HLen, "zset": c.ZCard, "stream": c.XLen}[kind]
	if count == nil {
		return 1, nil
	}
	n, err := count(ctx, key).Result()
	if err != nil {
		return 0, fmt.Errorf("entries of %s: %w", key, err)
	}
	return n, nil
}
