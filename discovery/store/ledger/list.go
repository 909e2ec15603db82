package ledger

import (
	"slices"
	"sort"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// maxScanned is how many leases List visits in one call.
const maxScanned = 4096

// List returns one page of the running leases that the query selects.
func (g *Ledger) List(now time.Time, q lease.Query) lease.Page {
	g.Advance(now)
	var page lease.Page
	rows := g.byFence.rows
	start := sort.Search(len(rows), func(i int) bool { return rows[i].fence > q.After })
	for i := start; i < len(rows); i++ {
		if i == start+maxScanned || len(page.Leases) == q.Limit {
			page.Next = rows[i-1].fence
			break
		}
		if l := rows[i].lease; l != nil && q.Matches(l.Lease) {
			found := l.Lease
			found.Ended = g.ended(found)
			page.Leases = append(page.Leases, found)
		}
	}
	return page
}

// byFence lists the running leases in the order of their grants, so that a page is
// found without a scan of all. A lease that has ended leaves a gap; gaps are closed
// when they outnumber the leases.
type byFence struct {
	rows []fenceRow
	gaps int
}

// fenceRow has no lease when it is a gap.
type fenceRow struct {
	fence uint64
	lease *activeLease
}

// minGaps is how many gaps are kept in any case.
const minGaps = 64

// from is the first row with that token or a larger one.
func (b *byFence) from(fence uint64) int {
	return sort.Search(len(b.rows), func(i int) bool { return b.rows[i].fence >= fence })
}

// add appends a lease. Replicas receive grants out of order, and insert.
func (b *byFence) add(l *activeLease) {
	i := len(b.rows)
	if i > 0 && b.rows[i-1].fence >= l.FencingToken {
		i = b.from(l.FencingToken)
		if b.rows[i].fence == l.FencingToken && b.rows[i].lease == nil {
			b.rows[i].lease = l
			b.gaps--
			return
		}
	}
	b.rows = slices.Insert(b.rows, i, fenceRow{l.FencingToken, l})
}

func (b *byFence) remove(l *activeLease) {
	for i := b.from(l.FencingToken); i < len(b.rows) && b.rows[i].fence == l.FencingToken; i++ {
		if b.rows[i].lease != l {
			continue
		}
		b.rows[i].lease = nil
		if b.gaps++; b.gaps > minGaps && b.gaps > len(b.rows)/2 {
			b.rows = slices.DeleteFunc(b.rows, func(r fenceRow) bool { return r.lease == nil })
			b.gaps = 0
		}
		return
	}
}
