package reconcile

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

// decided is a step in short.
type decided struct {
	kind    stepKind
	zone    string
	until   float64
	failure adapter.FailureClass
}

// waits is stepWait: until a wakeup when until is 0, else for so many seconds.
func waits(until float64) decided { return decided{kind: stepWait, until: until} }

// decideCase is a Proxy at the time t0, and its next step.
type decideCase struct {
	proxy func(*proxy)
	place *place
	view  func(*view)
	want  decided
}

// TestDecideWithoutInstance is the decision table of Proxies without an instance.
func TestDecideWithoutInstance(t *testing.T) {
	for name, tt := range map[string]decideCase{
		"nothing there":                    {want: decided{kind: stepInsert, zone: "a"}},
		"nothing there, busy":              {proxy: func(e *proxy) { e.busy = true }, want: waits(0)},
		"nothing there, deleted":           {proxy: func(e *proxy) { e.deleted = true }, want: waits(0)},
		"nothing there, zones not heard":   {view: func(v *view) { v.gap = errors.New("gap") }, want: waits(0)},
		"nothing there, latched":           {proxy: func(e *proxy) { e.failure = &failure{latched: true} }, want: waits(0)},
		"nothing there, backing off":       {proxy: func(e *proxy) { e.notBefore = at0(5) }, want: waits(5)},
		"nothing there, account paused":    {view: func(v *view) { v.pausedUntil = at0(7) }, want: waits(7)},
		"nothing there, both":              {proxy: func(e *proxy) { e.notBefore = at0(5) }, view: func(v *view) { v.pausedUntil = at0(7) }, want: waits(7)},
		"backing off, account full":        {proxy: func(e *proxy) { e.notBefore = at0(5) }, view: func(v *view) { v.occupied, v.nextList = 10, at0(9) }, want: waits(5)},
		"nothing there, account full":      {view: func(v *view) { v.occupied, v.nextList = 10, at0(9) }, want: decided{until: 9, failure: adapter.FailureQuotaExceeded}},
		"nothing there, one short of full": {view: func(v *view) { v.occupied = 9 }, want: decided{kind: stepInsert, zone: "a"}},
		"lost once":                        {proxy: func(e *proxy) { e.madeAt = at0(-1) }, want: decided{kind: stepInsert, zone: "a"}},
		"lost twice in a row":              {proxy: func(e *proxy) { e.madeAt, e.losses = at0(-1), 1 }, want: decided{until: 59, failure: adapter.FailureTransient}},
		"lost three times in a row":        {proxy: func(e *proxy) { e.madeAt, e.losses = at0(-1), 2 }, want: decided{until: 119, failure: adapter.FailureTransient}},
		"replaced":                         {proxy: func(e *proxy) { e.madeAt, e.losses, e.replaced = at0(-1), 2, true }, want: decided{kind: stepInsert, zone: "a"}},
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
			v.gates.startTrial(gateKey{"a", "m"}, "other", at0(-10))
		}, want: decided{kind: stepInsert, zone: "b"}},
	} {
		t.Run(name, tt.run)
	}
}

// TestDecideWithInstance is the decision table of Proxies with an instance, or with
// one in flight.
func TestDecideWithInstance(t *testing.T) {
	for name, tt := range map[string]decideCase{
		"runs":                     {place: &place{vm: vmIn(adapter.StateRunning)}, want: waits(0)},
		"provisions":               {place: &place{vm: vmIn(adapter.StateProvisioning)}, want: waits(0)},
		"stopping":                 {place: &place{vm: vmIn(adapter.StateStopping)}, want: waits(0)},
		"stopped":                  {place: &place{vm: vmIn(adapter.StateStopped)}, want: decided{kind: stepRemove}},
		"stopped, backing off":     {proxy: func(e *proxy) { e.notBefore = at0(3) }, place: &place{vm: vmIn(adapter.StateStopped)}, want: waits(3)},
		"to be replaced":           {proxy: func(e *proxy) { e.req.Replace = "1" }, place: &place{vm: vmIn(adapter.StateRunning)}, want: decided{kind: stepRemove}},
		"another to be replaced":   {proxy: func(e *proxy) { e.req.Replace = "2" }, place: &place{vm: vmIn(adapter.StateRunning)}, want: waits(0)},
		"another hash":             {place: &place{vm: &provider.Instance{ID: "1", SpecHash: "old", State: adapter.StateRunning}}, want: waits(0)},
		"runs, deleted":            {proxy: func(e *proxy) { e.deleted = true }, place: &place{vm: vmIn(adapter.StateRunning)}, want: decided{kind: stepRemove}},
		"leaving, deleted":         {proxy: func(e *proxy) { e.deleted = true }, place: &place{vm: &provider.Instance{ID: "1", State: adapter.StateStopping, Leaving: true}}, want: waits(0)},
		"vanished from a list":     {place: &place{vm: vmIn(adapter.StateRunning), absences: 1, checkAt: at0(2)}, want: waits(2)},
		"and due for a look":       {place: &place{vm: vmIn(adapter.StateRunning), absences: 1, checkAt: at0(0)}, want: decided{kind: stepCheck}},
		"sighting outdated":        {place: &place{vm: vmIn(adapter.StateRunning), stale: true}, want: decided{kind: stepCheck}},
		"gone and vanished":        {proxy: func(e *proxy) { e.deleted = true }, place: &place{vm: vmIn(adapter.StateRunning), absences: 1}, want: decided{kind: stepCheck}},
		"insert unanswered":        {place: &place{insert: &call{}}, want: decided{kind: stepInsert}},
		"insert unanswered, later": {proxy: func(e *proxy) { e.notBefore = at0(4) }, place: &place{insert: &call{}}, want: waits(4)},
		"insert unanswered, deleted": {
			proxy: func(e *proxy) { e.deleted = true }, place: &place{insert: &call{}, checkAt: at0(45)}, want: waits(45),
		},
		"insert accepted":                  {place: &place{insert: taken(3)}, want: waits(3)},
		"insert accepted, due":             {place: &place{insert: taken(0)}, want: decided{kind: stepPoll}},
		"insert accepted and seen":         {place: &place{insert: taken(3), vm: vmIn(adapter.StateProvisioning)}, want: waits(3)},
		"insert accepted, deleted":         {proxy: func(e *proxy) { e.deleted = true }, place: &place{insert: taken(3)}, want: decided{kind: stepCheck}},
		"insert accepted, seen, deleted":   {proxy: func(e *proxy) { e.deleted = true }, place: &place{insert: taken(3), vm: vmIn(adapter.StateProvisioning)}, want: decided{kind: stepRemove}},
		"delete unanswered":                {place: &place{remove: &call{}, vm: vmIn(adapter.StateStopped)}, want: decided{kind: stepRemove}},
		"delete accepted":                  {place: &place{remove: taken(3), vm: vmIn(adapter.StateStopped)}, want: waits(3)},
		"delete accepted, due":             {place: &place{remove: taken(0), vm: vmIn(adapter.StateStopped)}, want: decided{kind: stepPoll}},
		"delete accepted, nothing is seen": {place: &place{remove: taken(3), vm: vmIn(adapter.StateStopped), absences: 1}, want: decided{kind: stepCheck}},
	} {
		t.Run(name, tt.run)
	}
}

func (tt decideCase) run(t *testing.T) {
	e := tableProxy(t)
	if tt.proxy != nil {
		tt.proxy(e)
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

func tableProxy(t *testing.T) *proxy {
	t.Helper()
	cloud, err := gcp.New(t.Context(), gcp.Config{Project: "demo", MaxInstances: 10}, "inst", gcp.Options{Endpoint: "http://127.0.0.1:1"})
	require.NoError(t, err)
	return &proxy{uid: "u", name: "n", cloud: cloud, places: map[provider.Ref]*place{}, req: adapter.PutRequest{
		Placement: v1alpha1.Placement{Zone: "a", MachineType: "m", FallbackZones: []v1alpha1.Zone{"b"}},
	}}
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	var got []time.Duration
	for attempt := range 6 {
		got = append(got, backoff(time.Minute, 5*time.Minute, attempt+1))
	}
	assert.Equal(t, []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute}, got)
	assert.Equal(t, time.Hour, backoff(time.Minute, time.Hour, 1_000_000), "no overflow, no time lost")
}
