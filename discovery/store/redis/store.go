// Package redis keeps leases and cooldowns in Redis or Valkey, for several
// replicas of discovery at once.
//
// Redis is the authority: every operation is one script, and a lease is granted
// when its script has said so. Each replica keeps a mirror of it, a ledger, and
// chooses by that; the script then checks what must hold (room, no cooldown,
// the session's place, the key), and says "outdated" when the choice was made by
// an old picture. With every answer come the changes that the replica has not
// seen yet, so that the next choice is made by the new one.
//
// How durable a grant is, is Redis's to say: with appendfsync always as durable
// as its disk, with everysec it may lose the last second when it dies, and a
// failover may lose what was not replicated. Fencing tokens grow even then.
//
// What Redis loses all the same, the replicas put back as far as they remember it,
// and nothing is granted before each had the time to: see lua/mend.lua, which also
// mends what was spoilt. All that can get lost so is what no replica knows any more.
// A Redis that is set up to drop keys is not used: see inspect.go.
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
	// syncInterval is how often Run looks for what other replicas did.
	syncInterval = 250 * time.Millisecond
	// staleAfter is for how long Usage believes the mirror without asking.
	staleAfter = time.Second
	// dialTimeout and callTimeout bound what a client waits for when Redis is
	// away or hangs.
	dialTimeout, callTimeout = 2 * time.Second, 3 * time.Second
	// connections that one replica opens at the most.
	connections = 64
)

// Config of a store.
type Config struct {
	// Options say where Redis is: see ParseURL.
	Options *goredis.Options
	// Prefix of all keys. Replicas with one prefix share their leases.
	Prefix string
	// Cooldown is the longest cooldown, see lease.Report.Cooldown. Expired leases take
	// reports for as long.
	Cooldown time.Duration
	// Limits of what clients name; lease.DefaultLimits when left out. Replicas
	// with one prefix should have the same.
	Limits lease.Limits
	// Clock paces Run, and tells the time between two answers of Redis.
	Clock clock.WithTicker
	// LocalTime has Clock decide what is over, instead of Redis's own clock,
	// which all replicas share. For tests.
	LocalTime bool
	// Log gets a line when Redis goes and when it comes back.
	Log *slog.Logger

	// callTimeout is for tests, which may run on a machine that stands still for
	// longer than the constant of that name; it counts when this is left out.
	callTimeout time.Duration
}

// Store is a mirror in front of Redis. All its methods may be used from many
// goroutines. Errors are context errors and those that package lease names.
type Store struct {
	cfg            Config
	client         *goredis.Client
	key            string
	scripts        scripts
	freed, changed lease.Signal

	loading sync.Mutex

	inspection sync.Mutex
	inspected  *setup // of the Redis that is used, nil before

	mu     sync.Mutex
	mirror *ledger.Ledger
	time   timekeeper
	loaded bool  // the mirror holds what Redis held at revision last
	last   int64 // revision, and the nonce of the call that made it
	nonce  string
	// generation of what Redis holds; another one begins when that was lost or
	// mended. "" before the first load.
	generation string
	losses     uint64 // that this replica has noticed
	pending    map[string]*tentative
	doubtful   map[string]struct{}
	contact    time.Time // of the last answer
	err        error     // of the last call; nil when it was answered
	revision   uint64    // of the mirror, that watchers know of
}

// tentative is a lease that counts in the mirror while Redis is being asked.
type tentative struct {
	done      chan struct{}
	confirmed bool
	record    ledger.Record // as Redis granted it, once that is confirmed
}

// ParseURL reads redis://, rediss:// (TLS) and unix:// addresses. Beside the
// parameters of the library (such as db) there is prefix, the prefix of all
// keys. Errors do not show the address, which may hold a password.
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

// Quiet drops the log of the Redis library, which has one for the whole process:
// lines of its own form, for each dial in vain. Calls return the same errors. It is
// for main functions, before anything is opened.
func Quiet() { goredis.SetLogger(quiet{}) }

type quiet struct{}

// Printf implements the library's interface.
func (quiet) Printf(context.Context, string, ...any) {}

// Open returns a store that connects when it is first used: Redis may come up
// later than its clients.
func Open(cfg Config) *Store {
	o := *cfg.Options
	patience := cmp.Or(cfg.callTimeout, callTimeout)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, patience, patience, patience
	o.ContextTimeoutEnabled = true
	o.PoolSize = connections
	o.MaxRetries = 1 // every script may be sent twice
	o.DialerRetries = 1
	cfg.Limits = cmp.Or(cfg.Limits, lease.DefaultLimits)
	mirror := ledger.New(cfg.Cooldown, 0, nil)
	mirror.SetLimits(cfg.Limits)
	s := &Store{
		cfg: cfg, key: "{" + cfg.Prefix + "}", scripts: newScripts(sources, "lua"),
		mirror:  mirror,
		time:    timekeeper{clock: cfg.Clock, local: cfg.LocalTime},
		pending: map[string]*tentative{}, doubtful: map[string]struct{}{},
		err: errNeverReached,
	}
	o.OnConnect = func(ctx context.Context, c *goredis.Conn) error { return s.inspect(ctx, c) }
	s.client = goredis.NewClient(&o)
	return s
}

// Run follows what other replicas do, until ctx ends. Calls do so, too: Run
// wakes those who wait, and notices when Redis goes and comes back.
func (s *Store) Run(ctx context.Context) error {
	ticker := s.cfg.Clock.NewTicker(syncInterval)
	defer ticker.Stop()
	for {
		s.follow(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (s *Store) follow(ctx context.Context) {
	before := s.Ready()
	err := s.sync(ctx)
	s.settleDoubts(ctx)
	switch after := s.Ready(); {
	case ctx.Err() != nil:
	case after == nil && before != nil:
		s.cfg.Log.Info("Redis answers; leases are granted", "addr", s.client.Options().Addr)
	case err != nil && (before == nil || errors.Is(before, errNeverReached)):
		s.cfg.Log.Error("Redis does not answer; nothing is granted until it does", "addr", s.client.Options().Addr, "err", err)
	}
}

// Offer tells the store of a change of the fleet.
func (s *Store) Offer(offers lease.Offers) {
	s.mu.Lock()
	s.mirror.Offer(offers)
	s.wake()
	s.mu.Unlock()
	s.freed.Broadcast()
}

// Freed is closed when a place may have become free before its time. Of what
// other replicas do it knows within the quarter of a second.
func (s *Store) Freed() <-chan struct{} { return s.freed.C() }

// Changed is closed when anything in the store changes.
func (s *Store) Changed() <-chan struct{} { return s.changed.C() }

// Ready returns nil when Redis answered the last call.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the connections.
func (s *Store) Close() error { return s.client.Close() }

// wake tells watchers of a change of the mirror. The caller holds mu.
func (s *Store) wake() {
	if r := s.mirror.Revision(); r != s.revision {
		s.revision = r
		s.changed.Broadcast()
	}
}
