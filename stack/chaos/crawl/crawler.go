package crawl

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

// crawler is one client. Only its own goroutine calls its methods.
type crawler struct {
	cfg    *Config
	name   string
	random *rand.Rand
	pace   *rate.Limiter
	http   http.RoundTripper
	used   *recent
	keys   int
	etag   string
}

// sessions is how many sessions the crawlers of a domain share.
const sessions = 4

// results are all results of a report. Most reports have that of the crawl.
var results = []string{"ok", "rate_limited", "banned", "captcha", "target_timeout", "proxy_timeout", "connect_error"}

// run repeats random behaviours.
func (c *crawler) run(ctx context.Context) {
	for ctx.Err() == nil {
		switch n := c.random.IntN(100); {
		case n < 45:
			c.polite(ctx)
		case n < 65:
			c.inSession(ctx)
		case n < 77:
			c.withKey(ctx)
		case n < 84:
			c.vanish(ctx)
		case n < 91:
			c.late(ctx)
		case n < 95:
			c.impatient(ctx)
		default:
			c.list(ctx, c.replica(), time.Duration(c.random.IntN(6))*c.cfg.second)
		}
		supervise.Sleep(ctx, c.upTo(c.cfg.second))
	}
}

// polite leases, crawls, renews in long crawls, reports and releases.
func (c *crawler) polite(ctx context.Context) {
	if l := c.lease(ctx, c.wish()); l != nil {
		c.use(ctx, l)
	}
}

// inSession leases with a session that the crawlers share. It competes for the few slots
// of the session's proxy.
func (c *crawler) inSession(ctx context.Context) {
	w := c.wish()
	w.session = fmt.Sprintf("%s-%d", c.cfg.Domain, c.random.IntN(sessions))
	var leases []*held
	for range 1 + c.random.IntN(3) {
		l, rec := c.acquire(ctx, c.replica(), w)
		if l != nil {
			leases = append(leases, l)
		} else if !c.pause(ctx, rec) {
			break
		}
	}
	for _, l := range leases {
		c.use(ctx, l)
	}
}

// withKey retries the request with the same Idempotency-Key, also after a response: it
// must get the same lease.
func (c *crawler) withKey(ctx context.Context) {
	w := c.wish()
	c.keys++
	w.key = fmt.Sprintf("%s-%d-%d", c.name, c.cfg.Seed, c.keys)
	l, _ := c.acquire(ctx, c.replica(), w)
	for range 2 {
		if again, rec := c.acquire(ctx, c.replica(), w); again != nil {
			l = again
		} else if c.pause(ctx, rec) {
			continue
		}
		break
	}
	if l != nil {
		c.use(ctx, l)
	}
}

// vanish leases, crawls once and lets the lease expire.
func (c *crawler) vanish(ctx context.Context) {
	w := c.wish()
	w.ttl = c.seconds(2, 6)
	if l := c.lease(ctx, w); l != nil {
		c.through(ctx, l)
	}
}

// late reports and releases an expired lease. By then it usually has a new lease on the
// same proxy, by its own session, and checks that this one is unaffected.
func (c *crawler) late(ctx context.Context) {
	w := c.wish()
	w.ttl, w.session, w.exclude = c.seconds(1, 3), c.name, nil
	old := c.lease(ctx, w)
	if old == nil {
		return
	}
	c.through(ctx, old)
	supervise.Sleep(ctx, max(0, old.expiresAt-c.cfg.Recorder.Now())+c.upTo(2*c.cfg.second))
	c.get(ctx, c.replica(), old)
	w.ttl = c.seconds(8, 15)
	next := c.lease(ctx, w)
	c.report(ctx, c.replica(), old, c.someResult())
	c.release(ctx, c.replica(), old)
	if next != nil {
		c.get(ctx, c.replica(), next)
		c.release(ctx, c.replica(), next)
	}
}

// impatient cancels its request.
func (c *crawler) impatient(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, c.upTo(c.cfg.second*3/10)+time.Millisecond)
	defer cancel()
	w := c.wish()
	w.ttl = c.seconds(2, 6)
	if l, _ := c.acquire(short, c.replica(), w); l != nil {
		c.release(ctx, c.replica(), l)
	}
}

// use crawls through a lease until its release.
func (c *crawler) use(ctx context.Context, l *held) {
	result := "ok"
	for range 1 + c.random.IntN(3) {
		result = c.through(ctx, l)
		supervise.Sleep(ctx, c.upTo(l.ttl/2))
		if c.cfg.Recorder.Now() > l.expiresAt-l.ttl*2/3 {
			if rec := c.renew(ctx, c.replica(), l); rec.Status == http.StatusGone || rec.Status == http.StatusNotFound {
				return
			}
		}
	}
	if c.chance(25) {
		c.get(ctx, c.replica(), l)
	}
	if result != "ok" || c.chance(30) {
		c.report(ctx, c.replica(), l, result)
	} else if c.chance(8) {
		c.report(ctx, c.replica(), l, c.someResult())
	}
	c.release(ctx, c.replica(), l)
	if c.chance(15) {
		c.release(ctx, c.replica(), l)
	}
	if c.chance(10) {
		c.get(ctx, c.replica(), l)
	}
}

// lease retries a few times, after the Retry-After of each response.
func (c *crawler) lease(ctx context.Context, w want) *held {
	for range 3 {
		l, rec := c.acquire(ctx, c.replica(), w)
		if l != nil {
			return l
		}
		if !c.pause(ctx, rec) {
			return nil
		}
	}
	return nil
}

// pause waits for the Retry-After of a response. It returns false when a retry is useless
// or too far away.
func (c *crawler) pause(ctx context.Context, rec history.Call) bool {
	const most = 10 // seconds
	if rec.Status == 0 {
		return supervise.Sleep(ctx, c.cfg.second/5+c.upTo(c.cfg.second))
	}
	seconds, err := strconv.Atoi(rec.RetryAfter)
	return err == nil && seconds <= most && supervise.Sleep(ctx, time.Duration(seconds)*c.cfg.second)
}

// wish is a random lease request.
func (c *crawler) wish() want {
	w := want{ttl: c.seconds(4, 15)}
	if n := len(c.cfg.Selectors); n > 0 && c.chance(60) {
		w.selector = c.cfg.Selectors[c.random.IntN(n)]
	}
	if c.chance(70) {
		w.target = fmt.Sprintf("site-%d.example", c.random.IntN(12))
	}
	if c.chance(60) {
		w.exclude = c.used.list()
	}
	if c.chance(40) {
		w.wait = c.seconds(1, 6)
	}
	return w
}

func (c *crawler) replica() Replica { return c.cfg.Replicas[c.random.IntN(len(c.cfg.Replicas))] }

func (c *crawler) someResult() string { return results[c.random.IntN(len(results))] }

func (c *crawler) chance(percent int) bool { return c.random.IntN(100) < percent }

func (c *crawler) upTo(d time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(d) + 1))
}

func (c *crawler) seconds(from, to int) time.Duration {
	return time.Duration(from+c.random.IntN(to-from+1)) * c.cfg.second
}
