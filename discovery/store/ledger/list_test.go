package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// TestByFenceKeepsOrder adds and removes leases at random, as a replica receives them.
func TestByFenceKeepsOrder(t *testing.T) {
	g, _ := small(1)
	running := map[uint64]bool{}
	for range 3_000 {
		fence := uint64(1 + rand.IntN(400))
		id := fmt.Sprint(fence)
		if running[fence] {
			g.Drop(start, id)
			delete(running, fence)
			continue
		}
		running[fence] = true
		g.Put(start, Record{Lease: lease.Lease{ID: id, Instance: testOffer(0).Instance, FencingToken: fence, ExpiresAt: start.Add(time.Hour)}})
	}
	require.NoError(t, g.Check())
	assert.LessOrEqual(t, g.byFence.gaps, max(minGaps, len(g.byFence.rows)/2), "gaps are closed")
	var want, got []uint64
	for fence := range running {
		want = append(want, fence)
	}
	slices.Sort(want)
	for _, l := range g.List(start, lease.Query{Limit: 1_000}).Leases {
		got = append(got, l.FencingToken)
	}
	assert.Equal(t, want, got)
}

// TestListVisitsABoundedNumberOfLeases has a query that matches the last lease alone.
func TestListVisitsABoundedNumberOfLeases(t *testing.T) {
	g, _ := small(1)
	const n = 2*maxScanned + 10
	for i := range n {
		l := lease.Lease{ID: fmt.Sprint(i), Instance: testOffer(0).Instance, FencingToken: uint64(i + 1), ExpiresAt: start.Add(time.Hour)}
		if i == n-1 {
			l.Target = "a.example"
		}
		g.Put(start, Record{Lease: l})
	}
	q := lease.Query{Target: "a.example", Limit: 5}
	var pages []int
	for {
		page := g.List(start, q)
		pages = append(pages, len(page.Leases))
		if page.Next == 0 {
			break
		}
		q.After = page.Next
	}
	assert.Equal(t, []int{0, 0, 1}, pages)
}
