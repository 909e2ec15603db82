package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// crowded is a ledger that has something of everything.
func crowded(t *testing.T) *Ledger {
	t.Helper()
	g, _ := small(4)
	for i := range 3 {
		_, err := g.Acquire(start, lease.Request{TTL: time.Hour, Holder: "h", Session: "s", Key: string(rune('a' + i)), Target: "t"})
		require.NoError(t, err)
	}
	short, err := g.Acquire(start, lease.Request{TTL: time.Second})
	require.NoError(t, err)
	require.NoError(t, g.Report(start, short.ID, lease.Report{Result: lease.ResultBanned, Target: "t"}))
	g.Advance(start.Add(time.Second))
	for range 3 {
		g.view(lease.Request{}, "")
	}
	for range 2 {
		_, err = g.Acquire(g.now, lease.Request{TTL: time.Hour, Selector: map[string]string{"geo": "nowhere"}})
		require.Error(t, err)
	}
	require.NoError(t, g.Check())
	return g
}

func anyOf[K comparable, V any](m map[K]V) (k K, v V) {
	for k, v = range m {
		return k, v
	}
	panic("empty")
}

// TestCheckFindsWhatIsBroken breaks one invariant at a time: other packages' tests rely on
// Check.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	for want, corrupt := range map[string]func(g *Ledger){
		"is in no set":            func(g *Ledger) { _, l := anyOf(g.leases); l.index++ },
		"lacks its leases":        func(g *Ledger) { g.proxies[testOffer(0).ProxyUID].cooldowns = map[string]*cooldown{"x": nil, "y": nil} },
		"is empty":                func(g *Ledger) { g.detached[lease.Instance{ProxyUID: "x"}] = &leaseSet{} },
		"leases too many":         func(g *Ledger) { g.detached[lease.Instance{ProxyUID: "x"}] = &leaseSet{[]*activeLease{{}}} },
		"which does not run":      func(g *Ledger) { g.keys[scopedName{"h", "x"}] = &activeLease{} },
		"is out of order":         func(g *Ledger) { g.byFence.rows[0].fence = 99 },
		"byFence: 4 rows":         func(g *Ledger) { g.byFence.gaps++ },
		"runs, or has another id": func(g *Ledger) { _, x := anyOf(g.expired); x.id = "other" },
		"expired leases are kept": func(g *Ledger) { g.limits.Expired = 0 },
		"has the key":             func(g *Ledger) { _, s := anyOf(g.sessions); s.name = "x" },
		"or is another's":         func(g *Ledger) { _, s := anyOf(g.sessions); s.leases = append(s.leases, &activeLease{}) },
		"set of cooldowns of":     func(g *Ledger) { g.cooldowns["x"] = map[string]*cooldown{} },
		"deadlines are missing":   func(g *Ledger) { g.deadlines[ofSession].items = nil },
		"deadline":                func(g *Ledger) { g.deadlines[ofLease].items[0].index[inKind]++ },
		"groups for":              func(g *Ledger) { delete(g.holderSessions, "h") },
		"group":                   func(g *Ledger) { h := g.holderSessions["h"]; h.items = append(h.items, h.items[0]) },
		"stats of":                func(g *Ledger) { k, c := anyOf(g.stats.byRequest); c.stats.AtCapacity++; g.stats.byRequest[k] = c },
		"is lost":                 func(g *Ledger) { v := g.index.views[viewKey(lease.Request{}, "")]; v.items[1].index = 0 },
		"has rank":                func(g *Ledger) { v := g.index.views[viewKey(lease.Request{}, "")]; v.items[0].rank = unavailable },
		"is below a worse one":    func(g *Ledger) { v := g.index.views[viewKey(lease.Request{}, "")]; v.Swap(0, len(v.items)-1) },
		"is in the view of": func(g *Ledger) {
			v := g.index.views[viewKey(lease.Request{}, "")]
			v.request.Schemes = []string{"https"}
		},
		"the views have": func(g *Ledger) { g.index.items++ },
	} {
		g := crowded(t)
		corrupt(g)
		assert.ErrorContains(t, g.Check(), want, want)
	}
}
