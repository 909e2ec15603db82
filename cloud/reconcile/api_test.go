package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Row C18: hooks repeat requests with the same or with stale input, so that they are
// idempotent.
func TestC18RepeatedRequestsAreIdempotent(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	for range 3 {
		assert.Equal(t, adapter.ActionInserting, p.put().Action)
	}
	want := p.running()
	for range 3 {
		assert.Equal(t, want, p.put())
	}
	b.pass(time.Minute)
	assert.Equal(t, 1, b.count("insert"))
	first := p.delete()
	for range 3 {
		assert.Equal(t, first, p.delete())
	}
	p.absent()
	assert.Equal(t, 1, b.count("delete"))
}

func TestDeletedUIDHasATombstone(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	p.running()
	p.absent()
	_, err := p.tryPut()
	require.ErrorIs(t, err, adapter.ErrDeleted)
	b.pass(20 * time.Minute)
	_, err = p.tryPut()
	require.ErrorIs(t, err, adapter.ErrDeleted, "also after the proxy was forgotten")
	assert.Empty(t, b.gce.VMs())
	b.clock.Step(tombstoneTTL)
	b.drive()
	assert.Empty(t, b.reconciler.accounts[0].tombstones, "they do not pile up")
}

func TestUnknownProviderAndConflict(t *testing.T) {
	b := newHarness(t, harnessConfig{change: func(o *Options) {
		o.Providers = append(o.Providers, o.Providers[0])
		o.Providers[1].Name = "gcp-us"
	}})
	b.drive()
	p := b.proxy(1)
	_, err := b.reconciler.Put("azure", p.name(), p.req)
	require.ErrorIs(t, err, adapter.ErrUnknownProvider)
	_, err = b.reconciler.Delete("azure", p.name(), p.req.UID, "")
	require.ErrorIs(t, err, adapter.ErrUnknownProvider)
	p.put()
	_, err = b.reconciler.Put("gcp-us", p.name(), p.req)
	require.ErrorIs(t, err, adapter.ErrConflict)
	_, err = p.tryDelete("ns/pod")
	require.ErrorIs(t, err, adapter.ErrInvalid)
}

// Proxies of providers that share a project share its lists.
func TestProvidersOfOneAccountShareItsLists(t *testing.T) {
	b := newHarness(t, harnessConfig{change: func(o *Options) {
		o.Providers = append(o.Providers, o.Providers[0])
		o.Providers[1].Name = "gcp-us"
	}})
	b.pass(time.Minute)
	assert.Equal(t, 7, b.count("list"))
	assert.Len(t, b.reconciler.List().Providers, 2)
}

func TestIntentExpiresWithoutRequests(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	p.running()
	b.pass(16 * time.Minute)
	require.NoError(t, b.gce.Remove(zoneB, p.name()))
	b.pass(5 * time.Minute)
	assert.Empty(t, b.gce.VMs(), "nobody asked for it any more")
	assert.Equal(t, 1, b.count("insert"))
}

func TestListContainsRequestedAndUnrequestedInstances(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p, stray := b.proxy(1), b.proxy(2)
	p.running()
	stray.running()
	b.reconciler.Forget(stray.req.UID)
	b.pass(10 * time.Second)
	list := b.reconciler.List()
	require.Len(t, list.Instances, 2)
	byUID := map[string]adapter.ListedInstance{}
	for _, inst := range list.Instances {
		byUID[inst.UID] = inst
	}
	assert.Equal(t, "gcp-eu", byUID[p.req.UID].Provider)
	assert.Empty(t, byUID[stray.req.UID].Provider)
	assert.Equal(t, adapter.StateRunning, byUID[stray.req.UID].State)
	require.Len(t, list.Providers, 1)
	assert.NotNil(t, list.Providers[0].ListedAt)
	b.pass(16 * time.Minute)
	assert.Len(t, b.reconciler.List().Instances, 2, "proxies that were dropped still show")
}

// TestAnswer is the table of responses to PUT and DELETE.
func TestAnswer(t *testing.T) {
	type result struct {
		state  adapter.State
		action adapter.Action
		id     string
	}
	run, stop := vmIn(adapter.StateRunning), vmIn(adapter.StateStopped)
	gone := func(e *proxy) { e.deleted = true }
	tests := map[string]struct {
		proxy func(*proxy)
		place *place
		want  result
	}{
		"nothing there":                {want: result{adapter.StateAbsent, adapter.ActionInserting, ""}},
		"nothing there, failing":       {proxy: func(e *proxy) { e.failure = &failure{} }, want: result{adapter.StateAbsent, adapter.ActionNone, ""}},
		"nothing there, deleted":       {proxy: gone, want: result{adapter.StateStopping, adapter.ActionNone, ""}},
		"the same, confirmed":          {proxy: func(e *proxy) { e.deleted, e.confirmedAbsent = true, true }, want: result{adapter.StateAbsent, adapter.ActionNone, ""}},
		"insert sent":                  {place: &place{insert: &call{}}, want: result{adapter.StateProvisioning, adapter.ActionInserting, ""}},
		"insert sent, deleted":         {proxy: gone, place: &place{insert: &call{}}, want: result{adapter.StateStopping, adapter.ActionDeleting, ""}},
		"runs":                         {place: &place{vm: run}, want: result{adapter.StateRunning, adapter.ActionNone, "1"}},
		"runs, vanished from a list":   {place: &place{vm: run, absences: 1}, want: result{adapter.StateRunning, adapter.ActionNone, "1"}},
		"runs, to be replaced":         {proxy: func(e *proxy) { e.req.Replace = "1" }, place: &place{vm: run}, want: result{adapter.StateRunning, adapter.ActionDeleting, "1"}},
		"runs, its delete accepted":    {proxy: func(e *proxy) { e.req.Replace = "1" }, place: &place{vm: run, remove: taken(0)}, want: result{adapter.StateStopping, adapter.ActionDeleting, "1"}},
		"runs, deleted":                {proxy: gone, place: &place{vm: run}, want: result{adapter.StateStopping, adapter.ActionDeleting, "1"}},
		"stopped":                      {place: &place{vm: stop}, want: result{adapter.StateStopped, adapter.ActionDeleting, "1"}},
		"seen, insert still followed":  {place: &place{vm: vmIn(adapter.StateProvisioning), insert: taken(0)}, want: result{adapter.StateProvisioning, adapter.ActionInserting, "1"}},
		"suspected to be somewhere":    {place: &place{stale: true}, want: result{adapter.StateProvisioning, adapter.ActionNone, ""}},
		"suspected, deleted":           {proxy: gone, place: &place{stale: true}, want: result{adapter.StateStopping, adapter.ActionDeleting, ""}},
		"runs, deletion of a deletion": {proxy: func(e *proxy) { e.deleted, e.confirmedAbsent = true, true }, place: &place{vm: run}, want: result{adapter.StateStopping, adapter.ActionDeleting, "1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := tableProxy(t)
			if tt.proxy != nil {
				tt.proxy(e)
			}
			if tt.place != nil {
				tt.place.Ref = provider.Ref{Zone: "a", Name: "n"}
				e.places[tt.place.Ref] = tt.place
			}
			got := e.answer(t0)
			assert.Equal(t, tt.want, result{got.State, got.Action, got.InstanceID})
			assert.Equal(t, tt.want.id != "", got.ProviderID != "")
		})
	}
}

func TestFailureHasRetryAfterSeconds(t *testing.T) {
	var none *failure
	assert.Nil(t, none.answer(t0))
	for until, want := range map[float64]int64{90: 90, 0.2: 1, -5: 1, 89.6: 90} {
		f := &failure{class: adapter.FailureStockout, message: "m", until: at0(until)}
		assert.Equal(t, want, f.answer(t0).RetryAfterSeconds, until)
	}
	assert.Zero(t, (&failure{}).answer(t0).RetryAfterSeconds, "none is planned")
}
