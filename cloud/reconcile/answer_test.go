package reconcile

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

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
