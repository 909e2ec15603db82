package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func vmIn(state adapter.State) *provider.Instance {
	return &provider.Instance{ID: "1", UID: "u", State: state}
}

func taken(pollAt float64) *call {
	return &call{op: provider.Operation{Name: "op", TargetID: "1"}, pollAt: at0(pollAt)}
}

// decided is what decide answers, in short.
type decided struct {
	kind    stepKind
	zone    string
	until   float64
	failure adapter.FailureClass
}

// waits is for news when until is 0, else for so many seconds.
func waits(until float64) decided { return decided{kind: stepWait, until: until} }

// decideCase says what an entry is at the moment t0, and what is done next.
type decideCase struct {
	entry func(*entry)
	place *place
	view  func(*view)
	want  decided
}

// TestDecideWithoutInstance is the table of decisions for entries that have no
// instance.
func TestDecideWithoutInstance(t *testing.T) {
	for name, tt := range map[string]decideCase{
		"nothing there":                    {want: decided{kind: stepInsert, zone: "a"}},
		"nothing there, busy":              {entry: func(e *entry) { e.busy = true }, want: waits(0)},
		"nothing there, deleted":           {entry: func(e *entry) { e.gone = true }, want: waits(0)},
		"nothing there, zones not heard":   {view: func(v *view) { v.gap = errors.New("gap") }, want: waits(0)},
		"nothing there, latched":           {entry: func(e *entry) { e.failure = &failure{latched: true} }, want: waits(0)},
		"nothing there, backing off":       {entry: func(e *entry) { e.notBefore = at0(5) }, want: waits(5)},
		"nothing there, account paused":    {view: func(v *view) { v.paused = at0(7) }, want: waits(7)},
		"nothing there, both":              {entry: func(e *entry) { e.notBefore = at0(5) }, view: func(v *view) { v.paused = at0(7) }, want: waits(7)},
		"nothing there, account full":      {view: func(v *view) { v.occupied, v.nextList = 10, at0(9) }, want: decided{until: 9, failure: adapter.FailureQuotaExceeded}},
		"nothing there, one short of full": {view: func(v *view) { v.occupied = 9 }, want: decided{kind: stepInsert, zone: "a"}},
		"lost once":                        {entry: func(e *entry) { e.made = at0(-1) }, want: decided{kind: stepInsert, zone: "a"}},
		"lost twice in a row":              {entry: func(e *entry) { e.made, e.streak = at0(-1), 1 }, want: decided{until: 59, failure: adapter.FailureTransient}},
		"lost three times in a row":        {entry: func(e *entry) { e.made, e.streak = at0(-1), 2 }, want: decided{until: 119, failure: adapter.FailureTransient}},
		"replaced":                         {entry: func(e *entry) { e.made, e.streak, e.replaced = at0(-1), 2, true }, want: decided{kind: stepInsert, zone: "a"}},
		"first zone out of capacity": {
			view: func(v *view) { v.gates.stockout(gateKey{"a", "m"}, "x", t0) }, want: decided{kind: stepInsert, zone: "b"},
		},
		"both zones out of capacity": {
			view: func(v *view) {
				v.gates.stockout(gateKey{"a", "m"}, "x", t0)
				v.gates.stockout(gateKey{"b", "m"}, "x", at0(-60))
			}, want: decided{until: 60, failure: adapter.FailureStockout},
		},
		"another machine type is short": {view: func(v *view) { v.gates.stockout(gateKey{"a", "n"}, "x", t0) }, want: decided{kind: stepInsert, zone: "a"}},
		"first zone out of quota": {
			view: func(v *view) { v.gates.quota(gateKey{"a", "m"}, "x", t0, 300*time.Second) }, want: decided{until: 300, failure: adapter.FailureQuotaExceeded},
		},
		"shortage is over": {view: func(v *view) { v.gates.stockout(gateKey{"a", "m"}, "x", at0(-120)) }, want: decided{kind: stepInsert, zone: "a"}},
		"somebody tries whether it is over": {view: func(v *view) {
			v.gates.stockout(gateKey{"a", "m"}, "x", at0(-130))
			v.gates.tries(gateKey{"a", "m"}, "other", at0(-10))
		}, want: decided{kind: stepInsert, zone: "b"}},
	} {
		t.Run(name, tt.run)
	}
}

// TestDecideWithInstance is the table for those that have one, or have asked for it.
func TestDecideWithInstance(t *testing.T) {
	for name, tt := range map[string]decideCase{
		"runs":                     {place: &place{vm: vmIn(adapter.StateRunning)}, want: waits(0)},
		"provisions":               {place: &place{vm: vmIn(adapter.StateProvisioning)}, want: waits(0)},
		"stopping":                 {place: &place{vm: vmIn(adapter.StateStopping)}, want: waits(0)},
		"stopped":                  {place: &place{vm: vmIn(adapter.StateStopped)}, want: decided{kind: stepRemove}},
		"stopped, backing off":     {entry: func(e *entry) { e.notBefore = at0(3) }, place: &place{vm: vmIn(adapter.StateStopped)}, want: waits(3)},
		"to be replaced":           {entry: func(e *entry) { e.req.Replace = "1" }, place: &place{vm: vmIn(adapter.StateRunning)}, want: decided{kind: stepRemove}},
		"another to be replaced":   {entry: func(e *entry) { e.req.Replace = "2" }, place: &place{vm: vmIn(adapter.StateRunning)}, want: waits(0)},
		"another hash":             {place: &place{vm: &provider.Instance{ID: "1", SpecHash: "old", State: adapter.StateRunning}}, want: waits(0)},
		"runs, deleted":            {entry: func(e *entry) { e.gone = true }, place: &place{vm: vmIn(adapter.StateRunning)}, want: decided{kind: stepRemove}},
		"leaving, deleted":         {entry: func(e *entry) { e.gone = true }, place: &place{vm: &provider.Instance{ID: "1", State: adapter.StateStopping, Leaving: true}}, want: waits(0)},
		"vanished from a list":     {place: &place{vm: vmIn(adapter.StateRunning), absences: 1, checkAt: at0(2)}, want: waits(2)},
		"and due for a look":       {place: &place{vm: vmIn(adapter.StateRunning), absences: 1, checkAt: at0(0)}, want: decided{kind: stepCheck}},
		"sighting outdated":        {place: &place{vm: vmIn(adapter.StateRunning), unsure: true}, want: decided{kind: stepCheck}},
		"gone and vanished":        {entry: func(e *entry) { e.gone = true }, place: &place{vm: vmIn(adapter.StateRunning), absences: 1}, want: decided{kind: stepCheck}},
		"insert unanswered":        {place: &place{insert: &call{}}, want: decided{kind: stepInsert}},
		"insert unanswered, later": {entry: func(e *entry) { e.notBefore = at0(4) }, place: &place{insert: &call{}}, want: waits(4)},
		"insert unanswered, deleted": {
			entry: func(e *entry) { e.gone = true }, place: &place{insert: &call{}, checkAt: at0(45)}, want: waits(45),
		},
		"insert accepted":                  {place: &place{insert: taken(3)}, want: waits(3)},
		"insert accepted, due":             {place: &place{insert: taken(0)}, want: decided{kind: stepPoll}},
		"insert accepted and seen":         {place: &place{insert: taken(3), vm: vmIn(adapter.StateProvisioning)}, want: waits(3)},
		"insert accepted, deleted":         {entry: func(e *entry) { e.gone = true }, place: &place{insert: taken(3)}, want: decided{kind: stepCheck}},
		"insert accepted, seen, deleted":   {entry: func(e *entry) { e.gone = true }, place: &place{insert: taken(3), vm: vmIn(adapter.StateProvisioning)}, want: decided{kind: stepRemove}},
		"delete unanswered":                {place: &place{remove: &call{target: "1"}, vm: vmIn(adapter.StateStopped)}, want: decided{kind: stepRemove}},
		"delete accepted":                  {place: &place{remove: taken(3), vm: vmIn(adapter.StateStopped)}, want: waits(3)},
		"delete accepted, due":             {place: &place{remove: taken(0), vm: vmIn(adapter.StateStopped)}, want: decided{kind: stepPoll}},
		"delete accepted, nothing is seen": {place: &place{remove: taken(3), vm: vmIn(adapter.StateStopped), absences: 1}, want: decided{kind: stepCheck}},
	} {
		t.Run(name, tt.run)
	}
}

func (tt decideCase) run(t *testing.T) {
	e := tableEntry(t)
	if tt.entry != nil {
		tt.entry(e)
	}
	if tt.place != nil {
		tt.place.Ref = provider.Ref{Zone: "a", Name: "n"}
		e.places[tt.place.Ref] = tt.place
	}
	v := &view{now: t0, gates: gates{}}
	if tt.view != nil {
		tt.view(v)
	}
	s := decide(e, v)
	got := decided{kind: s.kind, zone: s.zone}
	if !s.until.IsZero() {
		got.until = s.until.Sub(t0).Seconds()
	}
	if s.failure != nil {
		got.failure = s.failure.class
	}
	assert.Equal(t, tt.want, got)
	assert.Equal(t, tt.place != nil && s.kind != stepWait, s.place != nil)
	again := decide(e, v)
	assert.Equal(t, s, again, "deciding changes nothing")
}

func tableEntry(t *testing.T) *entry {
	t.Helper()
	cloud, err := gcp.New(t.Context(), gcp.Config{Project: "demo", MaxInstances: 10}, "inst", gcp.Options{Endpoint: "http://127.0.0.1:1"})
	require.NoError(t, err)
	return &entry{uid: "u", name: "n", cloud: cloud, places: map[provider.Ref]*place{}, req: adapter.PutRequest{
		Placement: v1alpha1.Placement{Zone: "a", MachineType: "m", FallbackZones: []v1alpha1.Zone{"b"}},
	}}
}

// TestAnswer is the table of what callers are told.
func TestAnswer(t *testing.T) {
	type result struct {
		state  adapter.State
		action adapter.Action
		id     string
	}
	run, stop := vmIn(adapter.StateRunning), vmIn(adapter.StateStopped)
	gone := func(e *entry) { e.gone = true }
	tests := map[string]struct {
		entry func(*entry)
		place *place
		want  result
	}{
		"nothing there":                {want: result{adapter.StateAbsent, adapter.ActionInserting, ""}},
		"nothing there, failing":       {entry: func(e *entry) { e.failure = &failure{} }, want: result{adapter.StateAbsent, adapter.ActionNone, ""}},
		"nothing there, deleted":       {entry: gone, want: result{adapter.StateStopping, adapter.ActionNone, ""}},
		"the same, confirmed":          {entry: func(e *entry) { e.gone, e.absent = true, true }, want: result{adapter.StateAbsent, adapter.ActionNone, ""}},
		"insert sent":                  {place: &place{insert: &call{}}, want: result{adapter.StateProvisioning, adapter.ActionInserting, ""}},
		"insert sent, deleted":         {entry: gone, place: &place{insert: &call{}}, want: result{adapter.StateStopping, adapter.ActionDeleting, ""}},
		"runs":                         {place: &place{vm: run}, want: result{adapter.StateRunning, adapter.ActionNone, "1"}},
		"runs, vanished from a list":   {place: &place{vm: run, absences: 1}, want: result{adapter.StateRunning, adapter.ActionNone, "1"}},
		"runs, to be replaced":         {entry: func(e *entry) { e.req.Replace = "1" }, place: &place{vm: run}, want: result{adapter.StateRunning, adapter.ActionDeleting, "1"}},
		"runs, its delete accepted":    {entry: func(e *entry) { e.req.Replace = "1" }, place: &place{vm: run, remove: taken(0)}, want: result{adapter.StateStopping, adapter.ActionDeleting, "1"}},
		"runs, deleted":                {entry: gone, place: &place{vm: run}, want: result{adapter.StateStopping, adapter.ActionDeleting, "1"}},
		"stopped":                      {place: &place{vm: stop}, want: result{adapter.StateStopped, adapter.ActionDeleting, "1"}},
		"seen, insert still followed":  {place: &place{vm: vmIn(adapter.StateProvisioning), insert: taken(0)}, want: result{adapter.StateProvisioning, adapter.ActionInserting, "1"}},
		"suspected to be somewhere":    {place: &place{unsure: true}, want: result{adapter.StateProvisioning, adapter.ActionNone, ""}},
		"suspected, deleted":           {entry: gone, place: &place{unsure: true}, want: result{adapter.StateStopping, adapter.ActionDeleting, ""}},
		"runs, deletion of a deletion": {entry: func(e *entry) { e.gone, e.absent = true, true }, place: &place{vm: run}, want: result{adapter.StateStopping, adapter.ActionDeleting, "1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := tableEntry(t)
			if tt.entry != nil {
				tt.entry(e)
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

func TestFailureSaysWhenTheNextAttemptIs(t *testing.T) {
	var none *failure
	assert.Nil(t, none.answer(t0))
	for until, want := range map[float64]int64{90: 90, 0.2: 1, -5: 1, 89.6: 90} {
		f := &failure{class: adapter.FailureStockout, message: "m", until: at0(until)}
		assert.Equal(t, want, f.answer(t0).RetryAfterSeconds, until)
	}
	assert.Zero(t, (&failure{}).answer(t0).RetryAfterSeconds, "none is planned")
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	var got []time.Duration
	for attempt := range 6 {
		got = append(got, backoff(time.Minute, 5*time.Minute, attempt+1))
	}
	assert.Equal(t, []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute}, got)
	assert.Equal(t, time.Hour, backoff(time.Minute, time.Hour, 1_000_000), "no overflow, no time lost")
}

func TestGateRemembersHowOftenAndCountsNewsOnce(t *testing.T) {
	gs, k := gates{}, gateKey{"a", "m"}
	assert.Equal(t, at0(120), gs.stockout(k, "x", t0))
	assert.Equal(t, at0(120), gs.stockout(k, "x", at0(10)), "inserts that were sent before")
	assert.Equal(t, at0(120+240), gs.stockout(k, "x", at0(120)))
	assert.Equal(t, at0(1000), gs.quota(k, "y", at0(700), 300*time.Second))
	assert.Equal(t, at0(1000), gs[k].opens("u", at0(999)))
	assert.Zero(t, gs[k].opens("u", at0(1000)))
	gs.tries(k, "u", at0(1000))
	assert.Zero(t, gs[k].opens("u", at0(1001)), "the one that tries may try again")
	assert.Equal(t, at0(1120), gs[k].opens("v", at0(1001)))
	assert.Zero(t, gs[k].opens("v", at0(1120)), "patience is over")
}
