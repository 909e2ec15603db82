package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// t0 is the last change of a place; at0 counts seconds from it.
var t0 = time.Unix(1_000_000, 0)

func at0(seconds float64) time.Time {
	return t0.Add(time.Duration(seconds * float64(time.Second)))
}

func placed(change func(*place)) (*proxy, *place) {
	e := &proxy{uid: "u", name: "n", lagRuledOut: true, places: map[provider.Ref]*place{}}
	p := e.at(provider.Ref{Zone: "z", Name: "n"})
	p.vm = &provider.Instance{Ref: p.Ref, ID: "1", UID: "u", State: adapter.StateRunning}
	p.since = t0
	if change != nil {
		change(p)
	}
	return e, p
}

// look is one observation that found nothing.
type look struct {
	at   float64
	read bool
}

func TestObserveAbsent(t *testing.T) {
	accepted := func(target string) func(*place) {
		return func(p *place) { p.insert = &call{op: provider.Operation{Name: "op", TargetID: target}} }
	}
	unanswered := func(p *place) { p.insert, p.lateUntil = &call{}, at0(45) }
	tests := map[string]struct {
		change  func(*place)
		deleted bool
		looks   []look
		ends    bool
	}{
		"one read":                              {looks: []look{{1, true}}},
		"two reads":                             {looks: []look{{1, true}, {3, true}}, ends: true},
		"read and list":                         {looks: []look{{1, true}, {3, false}}, ends: true},
		"list and read":                         {looks: []look{{1, false}, {3, true}}, ends: true},
		"lists alone":                           {looks: []look{{1, false}, {11, false}, {21, false}}},
		"two reads in one breath":               {looks: []look{{1, true}, {2.9, true}}},
		"begun before the last change":          {looks: []look{{-1, true}, {0, true}, {1, true}}},
		"all begun before the last change":      {looks: []look{{-9, true}, {-5, true}}},
		"insert accepted, nothing seen":         {change: func(p *place) { p.vm = nil; accepted("2")(p) }, looks: []look{{1, true}, {3, true}}},
		"the same, deleted":                     {change: func(p *place) { p.vm = nil; accepted("2")(p) }, deleted: true, looks: []look{{1, true}, {3, true}}},
		"insert accepted and its VM seen":       {change: accepted("1"), looks: []look{{1, true}, {3, true}}, ends: true},
		"insert accepted and another VM seen":   {change: accepted("2"), looks: []look{{1, true}, {3, true}}},
		"insert unanswered: a repeat will tell": {change: unanswered, looks: []look{{50, true}, {60, true}}},
		"insert unanswered, deleted, too early": {change: unanswered, deleted: true, looks: []look{{1, true}, {45, true}, {46, true}}},
		"insert unanswered, deleted, settled":   {change: unanswered, deleted: true, looks: []look{{46, true}, {48, true}}, ends: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e, p := placed(tt.change)
			e.deleted = tt.deleted
			for _, l := range tt.looks {
				assert.Len(t, e.places, 1)
				e.observeAbsent(p, at0(l.at), l.read)
			}
			assert.Equal(t, tt.ends, len(e.places) == 0)
			assert.Equal(t, tt.ends, e.confirmedAbsent)
		})
	}
}

func TestPresenceResetsAbsences(t *testing.T) {
	e, p := placed(nil)
	e.observeAbsent(p, at0(1), true)
	e.observePresent(p, *p.vm, at0(3), true)
	e.observeAbsent(p, at0(5), true)
	assert.Len(t, e.places, 1)
	assert.False(t, e.confirmedAbsent)
	e.observeAbsent(p, at0(7), true)
	assert.Empty(t, e.places)
}

func TestObservationFromBeforeTheLastChangeIsStale(t *testing.T) {
	e, p := placed(func(p *place) { p.stale = true })
	e.observePresent(p, provider.Instance{ID: "old", UID: "u"}, at0(-1), true)
	assert.Equal(t, "1", p.vm.ID)
	assert.True(t, p.stale)
	e.observePresent(p, provider.Instance{ID: "2", UID: "u"}, at0(1), true)
	assert.Equal(t, "2", p.vm.ID)
	assert.False(t, p.stale)
}

func TestPresenceOfAnotherInstanceDropsTheDelete(t *testing.T) {
	e, p := placed(func(p *place) { p.remove = &call{} })
	e.observePresent(p, *p.vm, at0(1), true)
	assert.NotNil(t, p.remove)
	e.observePresent(p, provider.Instance{ID: "2", UID: "u"}, at0(2), true)
	assert.Nil(t, p.remove)
}

func TestPresenceEndsAnInsertWithoutResponse(t *testing.T) {
	e, p := placed(func(p *place) { p.vm, p.insert, p.lateUntil = nil, &call{}, at0(45) })
	e.busy = true
	e.observePresent(p, provider.Instance{ID: "1", UID: "u"}, at0(1), true)
	assert.NotNil(t, p.insert, "the call under way tells by itself")
	e.busy = false
	e.observePresent(p, provider.Instance{ID: "1", UID: "u"}, at0(2), true)
	assert.Nil(t, p.insert)
	assert.Zero(t, p.lateUntil)
}

// A list must not remove the place of a call in flight.
func TestListDoesNotRemoveThePlaceOfACallInFlight(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	a := b.reconciler.accounts[0]
	e, p := placed(nil)
	a.proxies["u"] = e
	e.observeAbsent(p, at0(1), true)
	e.busy = true
	a.observeList(&provider.Listing{}, at0(10))
	assert.Len(t, e.places, 1)
	e.busy = false
	a.observeList(&provider.Listing{}, at0(20))
	assert.Empty(t, e.places)
}

// Between decision and delete the instance is read: its id and hash must be those of
// the decision.
func TestConfirmRemoveChecksTheInstance(t *testing.T) {
	decided := provider.Instance{ID: "1", UID: "u", SpecHash: "h", State: adapter.StateStopped}
	tests := map[string]struct {
		change func(*provider.Instance)
		sent   bool
	}{
		"the same":       {func(*provider.Instance) {}, true},
		"another id":     {func(vm *provider.Instance) { vm.ID = "2" }, false},
		"another hash":   {func(vm *provider.Instance) { vm.SpecHash = "i" }, false},
		"another UID":    {func(vm *provider.Instance) { vm.UID = "v" }, false},
		"leaving":        {func(vm *provider.Instance) { vm.Leaving = true }, false},
		"running again":  {func(vm *provider.Instance) { vm.State = adapter.StateRunning }, false},
		"still stopping": {func(vm *provider.Instance) { vm.State = adapter.StateStopped }, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, harnessConfig{})
			e, p := placed(func(p *place) { p.vm = &decided })
			e.busy = true
			fresh := decided
			tt.change(&fresh)
			c := b.reconciler.accounts[0].confirmRemove(e, p, decided, fresh, nil, b.clock.Now())
			assert.Equal(t, tt.sent, c != nil)
			assert.Equal(t, tt.sent, e.busy, "without a call the proxy is free again")
		})
	}
}

// If a UID ever has two instances, one is deleted.
func TestYoungerOfTwoInstancesIsDeleted(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	old := p.running()
	twin := p.vms()[0].Resource
	twin.Id, twin.Zone, twin.SelfLink = nil, nil, nil
	_, err := b.gce.Add(zoneU, twin)
	require.NoError(t, err)
	b.doubles = nil // made by the test
	b.until(2*time.Minute, "one of them is gone", func() bool { p.put(); return len(p.vms()) == 1 })
	got := p.put()
	assert.Equal(t, old.InstanceID, got.InstanceID, "the younger one")
	assert.Equal(t, adapter.StateRunning, got.State)
	assert.Equal(t, 1, b.count("insert"))
}
