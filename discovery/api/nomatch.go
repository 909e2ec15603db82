package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// unhealthyRetryAfter is the Retry-After when all matching proxies are unhealthy,
// stale or not ready: the end of that is unknown, and probes run every 30 s by
// default.
const unhealthyRetryAfter = 30 * time.Second

// noMatchCounts counts the proxies that match a selector, each once: Considered is
// the sum of the others.
type noMatchCounts struct {
	Considered int `json:"considered"`
	AtCapacity int `json:"atCapacity"`
	InCooldown int `json:"inCooldown"`
	Unhealthy  int `json:"unhealthy"`
	Stale      int `json:"stale"`
	NotReady   int `json:"notReady"`
	Disabled   int `json:"disabled"`
	Excluded   int `json:"excluded"`
	// OtherScheme are not of one of the request's schemes.
	OtherScheme int `json:"otherScheme"`
}

// notOffered counts the matching proxies that the fleet does not offer.
type notOffered struct {
	counts noMatchCounts
	stale  *fleet.Proxy // the first one with a stale verdict, which the answer explains
}

// countNotOffered inspects every proxy of the fleet: some 0.3 ms for 10,000, without
// a lock. The store caches its half of a refusal, which it counts under its lock.
func countNotOffered(snap fleet.Snapshot, req acquireRequest) notOffered {
	var m notOffered
	exclude := sets.New(req.Exclude...)
	for _, p := range snap.Proxies {
		ok, reason := fleet.Leasable(p, snap.Freshness)
		excluded := exclude.Has(p.Candidate.Proxy)
		speaks := req.Speaks(p.Scheme)
		if ok && !excluded && speaks || !p.Matches(req.Selector) { // the cheap test first
			continue
		}
		switch {
		case excluded:
			m.counts.Excluded++
		case !speaks:
			m.counts.OtherScheme++
		case reason == fleet.ReasonUnhealthy:
			m.counts.Unhealthy++
		case reason == fleet.ReasonVerdictStale:
			m.counts.Stale++
			if m.stale == nil {
				m.stale = p
			}
		case reason == fleet.ReasonLeasingDisabled:
			m.counts.Disabled++
		default:
			m.counts.NotReady++
		}
	}
	return m
}

// refuse is the 409 that explains why no proxy could be leased.
func (m notOffered) refuse(f fleet.Freshness, stats lease.Stats, req acquireRequest, now time.Time) *apiError {
	c := m.counts
	c.AtCapacity, c.InCooldown = stats.AtCapacity, stats.InCooldown
	c.Considered = c.AtCapacity + c.InCooldown + c.Unhealthy + c.Stale + c.NotReady + c.Disabled + c.Excluded + c.OtherScheme
	return &apiError{
		code:       codeNoMatch,
		detail:     m.explain(f, c, stats, req),
		counts:     &c,
		retryAfter: retryAfter(c, stats, now),
	}
}

// retryAfter is 0, for no header, when a retry is useless until a Proxy is edited:
// nothing matches, or all matching proxies are disabled, excluded or of another scheme.
func retryAfter(c noMatchCounts, stats lease.Stats, now time.Time) time.Duration {
	if free := stats.FreeAt(); !free.IsZero() {
		return max(time.Second, free.Sub(now))
	}
	if c.Unhealthy+c.Stale+c.NotReady > 0 {
		return unhealthyRetryAfter
	}
	return 0
}

func (m notOffered) explain(f fleet.Freshness, c noMatchCounts, stats lease.Stats, req acquireRequest) string {
	if c.Considered == 0 {
		if len(req.Selector) == 0 {
			return "there is no proxy; GET /v1/proxies lists them"
		}
		selector, _ := json.Marshal(req.Selector)
		return fmt.Sprintf("no proxy has the attributes %s; GET /v1/proxies lists them", selector)
	}
	var parts []string
	add := func(n int, format string, args ...any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d ", n)+fmt.Sprintf(format, args...))
		}
	}
	target := req.Target
	if target == "" {
		target = "all targets"
	}
	add(c.AtCapacity, "at capacity%s", until(stats.CapacityFreeAt))
	add(c.InCooldown, "in cooldown for %s%s", target, until(stats.CooldownEndsAt))
	add(c.Unhealthy, "unhealthy")
	if m.stale != nil {
		add(c.Stale, "with a stale verdict (%s)", fleet.Explain(m.stale, f, fleet.ReasonVerdictStale))
	}
	add(c.NotReady, "not ready")
	add(c.Disabled, "disabled by maxLeases 0")
	add(c.Excluded, "excluded by the request")
	add(c.OtherScheme, "of another scheme than %s", strings.Join(req.Schemes, ", "))
	matching := fmt.Sprintf("%d proxies match", c.Considered)
	if c.Considered == 1 {
		matching = "1 proxy matches"
	}
	return matching + ": " + strings.Join(parts, ", ")
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + stamp(t)
}
