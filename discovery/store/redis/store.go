// Package redis keeps leases and cooldowns in Redis or Valkey, shared by several
// replicas of discovery.
//
// Redis is the authority: every operation is one script, and a lease is granted when
// its script returns ok. Each replica caches the state in a mirror, a ledger, and
// chooses proxies by it. The script then checks what must hold (a free slot, no
// cooldown, the session's instance, the key) and returns "outdated" when the mirror
// was stale. Each answer contains the changes that the replica has not seen yet, so a
// retry chooses by an up-to-date mirror.
//
// Grants are as durable as Redis: with appendfsync always as durable as its disk; with
// everysec it may lose the last second in a crash; a failover may lose what was not
// replicated. Fencing tokens grow even then.
//
// Replicas restore what Redis lost from their mirrors, and nothing is granted until
// each had the time to: see lua/repair.lua, which also repairs corrupt data. Only what
// no running replica has cached can be lost. A Redis that may evict keys is refused:
// see inspect.go.
package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

const (
	// syncInterval is how often Run polls for changes of other replicas.
	syncInterval = 250 * time.Millisecond
	// staleAfter is for how long Usage reads the mirror without a call to Redis.
	staleAfter = time.Second
	// dialTimeout and callTimeout bound the wait for a Redis that is down or hangs.
	dialTimeout, callTimeout = 2 * time.Second, 3 * time.Second
	// connections is the most that one replica opens.
	connections = 64
)

// Config of a store.
type Config struct {
	// Options have the address: see ParseURL.
	Options *goredis.Options
	// Prefix of all keys. Replicas with one prefix share their leases.
	Prefix string
	// Cooldown is the length of cooldowns, see lease.Report.Cooldown. Expired leases take
	// reports for as long.
	Cooldown time.Duration
	// Limits default to lease.DefaultLimits. Replicas with one prefix should have
	// the same.
	Limits lease.Limits
	// Clock paces Run, and measures the time between two answers of Redis.
	Clock clock.WithTicker
	// LocalTime uses Clock for expiry instead of the clock of Redis, which all
	// replicas share. For tests.
	LocalTime bool
	// Log gets a line when Redis becomes unavailable and when it is back.
	Log *slog.Logger

	// callTimeout replaces the constant in tests, which may run on a machine that
	// stalls for longer.
	callTimeout time.Duration
}

// Store is a mirror in front of Redis. It is safe for concurrent use. Errors are
// context errors and those of lease.Store.
type Store struct {
	*ledger.Calls // on the mirror, once it is up to date
	cfg           Config
	client        *goredis.Client
	key           string
	scripts       scripts

	loading sync.Mutex

	inspection sync.Mutex
	inspected  *setup // of the Redis in use, nil before the first connection

	mu     sync.Mutex
	mirror *ledger.Ledger
	time   timekeeper
	loaded bool  // the mirror holds what Redis held at revision last
	last   int64 // revision, and the nonce of the call that made it
	nonce  string
	// generation of the data in Redis; a loss or a repair starts another. "" before
	// the first load.
	generation string
	losses     uint64                   // see Losses
	pending    map[string]*pendingGrant // by lease id
	unused     map[string]struct{}      // ids of abandoned grants
	lastAnswer time.Time
	err        error // of the last call; nil when it was answered
}

// Open returns a store that connects at the first call: Redis may start after
// discovery.
func Open(cfg Config) *Store {
	o := *cfg.Options
	timeout := cmp.Or(cfg.callTimeout, callTimeout)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, timeout, timeout, timeout
	o.ContextTimeoutEnabled = true
	o.PoolSize = connections
	o.MaxRetries = 1 // every script is idempotent
	o.DialerRetries = 1
	cfg.Limits = cmp.Or(cfg.Limits, lease.DefaultLimits)
	mirror := ledger.New(cfg.Cooldown, 0, nil)
	mirror.SetLimits(cfg.Limits)
	s := &Store{
		cfg: cfg, key: "{" + cfg.Prefix + "}", scripts: newScripts(),
		mirror:  mirror,
		time:    timekeeper{clock: cfg.Clock, local: cfg.LocalTime},
		pending: map[string]*pendingGrant{}, unused: map[string]struct{}{},
		err: errNotConnected,
	}
	s.Calls = ledger.NewCalls(s.do)
	o.OnConnect = func(ctx context.Context, c *goredis.Conn) error { return s.inspect(ctx, c) }
	s.client = goredis.NewClient(&o)
	return s
}

// Run polls Redis for changes of other replicas until ctx ends. Calls apply them
// too; Run wakes waiting requests, and logs when Redis becomes unavailable or is back.
func (s *Store) Run(ctx context.Context) error {
	ticker := s.cfg.Clock.NewTicker(syncInterval)
	defer ticker.Stop()
	for {
		s.poll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (s *Store) poll(ctx context.Context) {
	before := s.Ready()
	err := s.sync(ctx)
	s.releaseUnused(ctx)
	switch after := s.Ready(); {
	case ctx.Err() != nil:
	case after == nil && before != nil:
		s.cfg.Log.Info("Redis is available; leases are granted", "addr", s.client.Options().Addr)
	case err != nil && (before == nil || errors.Is(before, errNotConnected)):
		s.cfg.Log.Error("Redis is unavailable; nothing is granted until it answers", "addr", s.client.Options().Addr, "err", err)
	}
}

// Offer applies a change of the fleet.
func (s *Store) Offer(offers lease.Offers) {
	s.mu.Lock()
	s.mirror.Offer(offers)
	s.NotifyChanged(s.mirror)
	s.mu.Unlock()
	s.NotifyFreed()
}

// do is a ledger.Do for calls that only read: the mirror is brought up to date first.
func (s *Store) do(ctx context.Context, _ bool, call func(g *ledger.Ledger, now time.Time) error) error {
	if err := s.sync(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return call(s.mirror, s.time.now())
}

// Ready returns nil when Redis answered the last call.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the connections.
func (s *Store) Close() error { return s.client.Close() }

// ParseURL parses redis://, rediss:// (TLS) and unix:// addresses. Beside the
// parameters of the library (such as db) they take prefix, the prefix of all keys.
// Errors do not quote the address, which may contain a password.
func ParseURL(url string) (*goredis.Options, string, error) {
	base, query, _ := strings.Cut(url, "?")
	prefix, params := "egress-proxies", []string{}
	for _, param := range strings.Split(query, "&") {
		if value, ok := strings.CutPrefix(param, "prefix="); ok {
			prefix = value
		} else if param != "" {
			params = append(params, param)
		}
	}
	if prefix == "" || strings.ContainsAny(prefix, "{}%+") {
		return nil, "", fmt.Errorf("redis address: prefix is empty or has one of {}%%+ in it")
	}
	if len(params) > 0 {
		base += "?" + strings.Join(params, "&")
	}
	o, err := goredis.ParseURL(base)
	if err != nil || !strings.Contains(base, "://") || !dialable(o) {
		return nil, "", fmt.Errorf("redis address: want redis://[[user]:password@]host:port[/database], rediss:// for TLS, or unix:///path, and only parameters that the Redis library knows or prefix")
	}
	return o, prefix, nil
}

func dialable(o *goredis.Options) bool {
	if o.Network == "unix" {
		return o.Addr != ""
	}
	_, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// Quiet disables the log of the Redis library, which is one for the whole process and
// has a line for each failed dial. Calls return the same errors. Main functions call
// it before they open a store.
func Quiet() { goredis.SetLogger(quiet{}) }

type quiet struct{}

// Printf implements the library's interface.
func (quiet) Printf(context.Context, string, ...any) {}
