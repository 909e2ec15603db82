package redistest

import (
	"context"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// Parts lists what a store keeps one entry of for each of something, in one key or in
// several, and the log. The rest are two numbers.
func Parts() []string {
	return []string{"leases", "running", "ends", "keys", "sessions", "of", "cooling", "count", "due", "log"}
}

// Census counts the entries that a store keeps under a prefix, by kind of key, such as
// all :running:INSTANCE.
func Census(ctx context.Context, c *goredis.Client, prefix string) (map[string]int64, error) {
	parts := map[string]int64{}
	keys := c.Scan(ctx, 0, "{"+prefix+"}:*", 1000).Iterator()
	for keys.Next(ctx) {
		name, _, _ := strings.Cut(strings.TrimPrefix(keys.Val(), "{"+prefix+"}:"), ":")
		n, err := entries(ctx, c, keys.Val())
		if err != nil {
			return nil, err
		}
		parts[name] += n
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
