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

// forgetful is a journal that records the deleted leases.
type forgetful struct {
	discard
	forgotten *[]string
}

func (f forgetful) DeleteLease(r Record) { *f.forgotten = append(*f.forgotten, r.ID) }

// A replica receives leases in any order, also expired ones, and evicts the same ones as
// the other replicas.
func TestOldestExpiredLeasesAreEvictedInAnyOrderOfArrival(t *testing.T) {
	const all, most = 200, 30
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var forgotten []string
	g := New(time.Hour, 0, forgetful{forgotten: &forgotten})
	g.SetLimits(lease.Limits{Expired: most})
	now, want := start.Add(time.Minute), []Record{}
	for i := range all {
		r := Record{Lease: lease.Lease{ID: fmt.Sprintf("lease-%03d", i), FencingToken: uint64(i + 1), ExpiresAt: start.Add(time.Duration(i/3) * time.Second)}}
		want = append(want, r)
	}
	over := slices.IndexFunc(want, func(r Record) bool { return r.ExpiresAt.After(now) })
	for _, i := range rnd.Perm(all) {
		g.Put(now, want[i])
		require.NoError(t, g.Check())
	}
	for i, r := range want {
		_, known := g.Find(now, r.ID)
		assert.Equal(t, i >= over-most, known, r.ID)
		assert.Equal(t, !known, slices.Contains(forgotten, r.ID), "the journal receives the deletion of %s", r.ID)
	}
	assert.Equal(t, all-over, g.Usage(now).Total())

	assert.Equal(t, start.Add(61*time.Second), g.Next())
	assert.Equal(t, most, g.Usage(start.Add(10*time.Minute)).Expired, "the newest, now that all have expired")
	for next := g.Next(); !next.IsZero(); next = g.Next() {
		g.Advance(next)
		require.NoError(t, g.Check())
	}
	assert.Empty(t, g.State().Leases)
	assert.Len(t, forgotten, all, "each once")
}

func TestExpiredLeaseHasNoKeyAndSession(t *testing.T) {
	g := New(time.Hour, 0, nil)
	g.Offer(lease.Offers{Changed: []*lease.Offer{testOffer(1)}})
	req := lease.Request{TTL: time.Minute, Holder: "crawler", Key: "key", Fingerprint: "print", Session: "session", Target: "a.example"}
	l, err := g.Acquire(start, req)
	require.NoError(t, err)
	g.Advance(l.ExpiresAt)
	assert.Empty(t, g.keys)
	want := Record{Lease: lease.Lease{
		ID: l.ID, Instance: l.Instance, Proxy: l.Proxy, Holder: "crawler", Target: "a.example",
		ExpiresAt: l.ExpiresAt, FencingToken: l.FencingToken,
	}}
	assert.Equal(t, []Record{want}, g.State().Leases)
	assert.True(t, g.Release(l.ExpiresAt, l.ID))
	assert.Empty(t, g.State().Leases)
}
