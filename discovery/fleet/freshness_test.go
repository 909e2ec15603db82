package fleet

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// owned returns a UID that belongs to the shard, and one that does not.
func owned(s v1alpha1.Shard) (mine, other string) {
	for i := 0; mine == "" || other == ""; i++ {
		uid := fmt.Sprintf("uid-%d", i)
		if s.Owns(types.UID(uid)) {
			mine = uid
		} else {
			other = uid
		}
	}
	return mine, other
}

func TestFreshness(t *testing.T) {
	const maxAge = 5 * time.Minute
	half := v1alpha1.Shard{Index: 0, Count: 2}
	rest := v1alpha1.Shard{Index: 1, Count: 2}
	whole := v1alpha1.Shard{Index: 0, Count: 1}
	mine, other := owned(half)
	ago := func(s v1alpha1.Shard, d time.Duration) Renewal { return Renewal{Shard: s, At: now.Add(-d)} }
	tests := map[string]struct {
		renewals            []Renewal
		wantMine, wantOther bool
		explain             string // of the first that is stale
	}{
		"no Lease at all":           {explain: "no prober has ever renewed a Lease: is one running?"},
		"one shard of one":          {renewals: []Renewal{ago(whole, time.Second)}, wantMine: true, wantOther: true},
		"at the age limit":          {renewals: []Renewal{ago(whole, maxAge)}, wantMine: true, wantOther: true},
		"past the age limit":        {renewals: []Renewal{ago(whole, maxAge+time.Second)}, explain: "prober shard 0/1 has not renewed its Lease for 5m1s, and verdicts are stale after 5m0s: is it running?"},
		"both shards":               {renewals: []Renewal{ago(half, 0), ago(rest, time.Minute)}, wantMine: true, wantOther: true},
		"one of two lapsed":         {renewals: []Renewal{ago(half, 0), ago(rest, time.Hour)}, wantMine: true, explain: "prober shard 1/2 has not renewed its Lease for 1h0m0s, and verdicts are stale after 5m0s: is it running?"},
		"the other lapsed":          {renewals: []Renewal{ago(half, time.Hour), ago(rest, 0)}, wantOther: true},
		"one of two never there":    {renewals: []Renewal{ago(half, 0)}, wantMine: true, explain: "no prober shard owns it, known are [0/2]: is one missing?"},
		"resharded, the old lapsed": {renewals: []Renewal{ago(whole, time.Hour), ago(half, 0), ago(rest, 0)}, wantMine: true, wantOther: true},
		"resharded, the new lapsed": {renewals: []Renewal{ago(half, time.Hour), ago(rest, time.Hour), ago(whole, 0)}, wantMine: true, wantOther: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := NewFreshness(tt.renewals, now, maxAge)
			assert.Equal(t, tt.wantMine, f.Fresh(mine))
			assert.Equal(t, tt.wantOther, f.Fresh(other))
			if tt.explain != "" && !tt.wantMine {
				assert.Equal(t, tt.explain, f.Explain(mine))
			} else if tt.explain != "" {
				assert.Equal(t, tt.explain, f.Explain(other))
			}
		})
	}
}

// Discovery has lost the API server: that the probers renew no more is not known.
func TestStaleVerdictIsNotHeldAgainstTheProberWhenTheWatchFails(t *testing.T) {
	f := NewFreshness([]Renewal{{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: now.Add(-time.Hour)}}, now, time.Minute)
	assert.Contains(t, f.Explain("uid"), "is it running?")
	f.blind = true
	assert.False(t, f.Fresh("uid"), "what is not known is not leased")
	assert.Contains(t, f.Explain("uid"), "discovery cannot watch the probers' Leases")
	assert.NotContains(t, f.Explain("uid"), "is it running?")
}

func TestFreshnessCountsShards(t *testing.T) {
	f := NewFreshness([]Renewal{
		{Shard: v1alpha1.Shard{Index: 0, Count: 3}, At: now.Add(-time.Hour)},
		{Shard: v1alpha1.Shard{Index: 1, Count: 3}, At: now},
		{Shard: v1alpha1.Shard{Index: 2, Count: 3}, At: now.Add(-time.Second)},
	}, now, time.Minute)
	alive, lapsed := f.Shards()
	assert.Equal(t, []int{2, 1}, []int{alive, lapsed})
}

// After a change of the number of shards the old Leases stay behind for ever.
func TestFormerShardsDoNotCountAsLapsed(t *testing.T) {
	old := now.Add(-24 * time.Hour)
	renewals := []Renewal{
		{Shard: v1alpha1.Shard{Index: 0, Count: 2}, At: old},
		{Shard: v1alpha1.Shard{Index: 1, Count: 2}, At: old},
		{Shard: v1alpha1.Shard{Index: 0, Count: 3}, At: now},
		{Shard: v1alpha1.Shard{Index: 1, Count: 3}, At: now},
	}
	alive, lapsed := NewFreshness(renewals, now, time.Minute).Shards()
	assert.Equal(t, []int{2, 2}, []int{alive, lapsed}, "a part of the fleet has no prober yet")

	renewals = append(renewals, Renewal{Shard: v1alpha1.Shard{Index: 2, Count: 3}, At: now})
	alive, lapsed = NewFreshness(renewals, now, time.Minute).Shards()
	assert.Equal(t, []int{3, 0}, []int{alive, lapsed})

	alive, lapsed = NewFreshness(renewals, now.Add(time.Hour), time.Minute).Shards()
	assert.Equal(t, []int{0, 5}, []int{alive, lapsed}, "when the new ones go as well, all is lapsed")
}

func leaseObject(name string, shard string, renewed *time.Time) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, Labels: map[string]string{v1alpha1.LabelProberShard: shard}}}
	if renewed != nil {
		l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(*renewed))
	}
	return l
}

func testLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestRenewalsFromAClockAhead: a prober whose clock is an hour ahead is alive
// while it renews, and dead maxAge after it stopped, not an hour later.
func TestRenewalsFromAClockAhead(t *testing.T) {
	clk := clocktesting.NewFakeClock(now)
	s := newProberLeases(clk, testLog(), &lease.Signal{})
	fresh := func() bool { return NewFreshness(s.list(), clk.Now(), time.Minute).Fresh("any") }
	claimed := now.Add(time.Hour)
	require.NoError(t, s.Add(leaseObject("prober-0-of-1", "0-of-1", &claimed)))
	assert.True(t, fresh())

	clk.Step(50 * time.Second)
	require.NoError(t, s.Replace([]any{leaseObject("prober-0-of-1", "0-of-1", &claimed)}, "7"))
	clk.Step(11 * time.Second)
	assert.False(t, fresh(), "listing it again is no renewal")

	claimed = claimed.Add(time.Minute)
	require.NoError(t, s.Update(leaseObject("prober-0-of-1", "0-of-1", &claimed)))
	assert.True(t, fresh(), "but this is one")
	clk.Step(61 * time.Second)
	assert.False(t, fresh())
}

func TestRenewals(t *testing.T) {
	clk := clocktesting.NewFakeClock(now)
	s := newProberLeases(clk, testLog(), &lease.Signal{})
	early := now.Add(-time.Minute)
	require.NoError(t, s.Add(leaseObject("a", "0-of-2", &early)))
	require.NoError(t, s.Add(leaseObject("b", "1-of-2", &now)))
	require.NoError(t, s.Add(leaseObject("c", "not a shard", &now)))
	require.NoError(t, s.Add(leaseObject("d", "0-of-1", nil)))
	assert.ElementsMatch(t, []Renewal{
		{Shard: v1alpha1.Shard{Index: 0, Count: 2}, At: early},
		{Shard: v1alpha1.Shard{Index: 1, Count: 2}, At: now},
	}, s.list())

	require.NoError(t, s.Update(leaseObject("b", "spoilt", &now)))
	require.NoError(t, s.Delete(leaseObject("a", "0-of-2", &early)))
	assert.Empty(t, s.list())

	require.NoError(t, s.Replace([]any{leaseObject("e", "0-of-1", &now)}, "9"))
	assert.Len(t, s.list(), 1)
	require.NoError(t, s.Resync())

	stranger := &metav1.Status{}
	assert.ErrorContains(t, s.Add(stranger), "*v1.Status")
	assert.Error(t, s.Delete(stranger))
	assert.Error(t, s.Replace([]any{stranger}, "10"))
	assert.Len(t, s.list(), 1, "a list that is refused changes nothing")
}
