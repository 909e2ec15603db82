package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// refusedRetryAfter is told when all that match are unhealthy, stale or not
// ready: nobody knows when that ends, and probes run every 30 s by default.
const refusedRetryAfter = 30 * time.Second

// noMatchCounts says what became of the proxies that match a selector. Each is
// counted once, so that Considered is the sum of the others.
type noMatchCounts struct {
	Considered int `json:"considered"`
	AtCapacity int `json:"atCapacity"`
	InCooldown int `json:"inCooldown"`
	Unhealthy  int `json:"unhealthy"`
	Stale      int `json:"stale"`
	NotReady   int `json:"notReady"`
	Disabled   int `json:"disabled"`
	Excluded   int `json:"excluded"`
}

// matched counts the proxies that match a selector and that the fleet does not
// offer.
type matched struct {
	counts noMatchCounts
	stale  *fleet.Proxy // the first one with a stale verdict, to tell why
}

// match takes a look at every proxy. A census does so once for each state of the
// fleet.
func match(snap fleet.Snapshot, req acquireRequest) *matched {
	m := &matched{}
	for _, p := range snap.Proxies {
		if !p.Matches(req.Selector) {
			continue
		}
		if slices.Contains(req.Exclude, p.Candidate.Proxy) {
			m.counts.Excluded++
			continue
		}
		if ok, reason := fleet.Leasable(p, snap.Freshness); !ok {
			m.count(p, reason, 1)
		}
	}
	return m
}

// count counts a proxy n times more.
func (m *matched) count(p *fleet.Proxy, reason fleet.Reason, n int) {
	switch reason {
	case fleet.ReasonUnhealthy:
		m.counts.Unhealthy += n
	case fleet.ReasonVerdictStale:
		m.counts.Stale += n
		if m.stale == nil {
			m.stale = p
		}
	case fleet.ReasonLeasingDisabled:
		m.counts.Disabled += n
	default:
		m.counts.NotReady += n
	}
}

// refuse makes the 409 that explains itself.
func (m *matched) refuse(f fleet.Freshness, stats lease.Stats, req acquireRequest, now time.Time) error {
	c := m.counts
	c.AtCapacity, c.InCooldown = stats.AtCapacity, stats.InCooldown
	c.Considered = c.AtCapacity + c.InCooldown + c.Unhealthy + c.Stale + c.NotReady + c.Disabled + c.Excluded
	return &apiError{
		code:       codeNoMatch,
		detail:     m.explain(f, c, stats, req),
		counts:     &c,
		retryAfter: retryAfter(c, stats, now),
	}
}

// retryAfter is 0, for no header, when trying again is no use before somebody
// changes a Proxy: nothing matches, or all that does is switched off or excluded.
func retryAfter(c noMatchCounts, stats lease.Stats, now time.Time) time.Duration {
	if free := stats.FreeAt(); !free.IsZero() {
		return max(time.Second, free.Sub(now))
	}
	if c.Unhealthy+c.Stale+c.NotReady > 0 {
		return refusedRetryAfter
	}
	return 0
}

func (m *matched) explain(f fleet.Freshness, c noMatchCounts, stats lease.Stats, req acquireRequest) string {
	if c.Considered == 0 {
		return fmt.Sprintf("no proxy has the attributes %s; GET /v1/proxies lists what there is", selectorText(req.Selector))
	}
	var parts []string
	add := func(n int, text string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, text))
		}
	}
	add(c.AtCapacity, "at capacity"+when(" until ", stats.CapacityFreeAt))
	add(c.InCooldown, "cooling for "+targetText(req.Target)+when(" until ", stats.CooldownEndsAt))
	add(c.Unhealthy, "unhealthy")
	if m.stale != nil {
		add(c.Stale, "with a stale verdict ("+fleet.Explain(m.stale, f, fleet.ReasonVerdictStale)+")")
	}
	add(c.NotReady, "not ready")
	add(c.Disabled, "switched off by maxLeases 0")
	add(c.Excluded, "excluded by the request")
	return fmt.Sprintf("%s: %s", plural(c.Considered), strings.Join(parts, ", "))
}

func plural(n int) string {
	if n == 1 {
		return "1 proxy matches"
	}
	return fmt.Sprintf("%d proxies match", n)
}

func when(prefix string, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return prefix + stamp(t)
}

func targetText(target string) string {
	if target == "" {
		return "all targets"
	}
	return target
}

func selectorText(selector map[string]string) string {
	if len(selector) == 0 {
		return "{}, and so there is none at all"
	}
	b, err := json.Marshal(selector)
	if err != nil { // strings always encode
		return "asked for"
	}
	return string(b)
}
