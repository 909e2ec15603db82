package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
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

func allGaps() []gcestandin.ZoneMode {
	return []gcestandin.ZoneMode{gcestandin.ZoneUnreachable, gcestandin.ZoneUnreachableLate, gcestandin.ZoneSilent}
}

// Row D12: instances in an unreachable zone keep their last observation; all others
// are reconciled.
func TestD12UnreachableZoneChangesNothing(t *testing.T) {
	for _, mode := range allGaps() {
		b := newHarness(t, harnessConfig{timing: realistic()})
		p, other := b.proxy(1), b.proxy(2)
		other.req.Placement.Zone = zoneU
		old := p.running()
		other.running()
		b.gce.SetZone(zoneB, mode)
		b.pass(10 * time.Minute)
		assert.Equal(t, old, p.put(), mode)
		other.put()
		assert.Equal(t, 2, b.count("insert"))

		fresh := b.proxy(3)
		fresh.req.Placement.Zone = zoneU
		fresh.running()
		other.absent()

		p.delete()
		b.pass(3 * time.Minute)
		got := p.delete()
		assert.NotEqual(t, adapter.StateAbsent, got.State)
		assert.NotNil(t, got.Failure, "people can see why it takes so long")
		b.gce.SetZone(zoneB, gcestandin.ZoneUp)
		p.absent()
	}
}

// A VM that vanished while its zone was unreachable is noticed afterwards.
func TestD12LossDuringAnOutageIsNoticedAfterIt(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	old := p.running()
	b.gce.SetZone(zoneB, gcestandin.ZoneUnreachable)
	require.NoError(t, b.gce.Remove(zoneB, p.name()))
	b.pass(5 * time.Minute)
	assert.Equal(t, old.InstanceID, p.put().InstanceID)
	b.gce.SetZone(zoneB, gcestandin.ZoneUp)
	b.until(5*time.Minute, "a new instance", func() bool {
		got := p.put()
		return got.State == adapter.StateRunning && got.InstanceID != old.InstanceID
	})
}

// The same for a Proxy without a request before the outage: lists contained its
// instance.
func TestD12UnreachableZoneOfALaterRequest(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	old := p.running()
	b.restart()
	b.drive()
	b.gce.SetZone(zoneB, gcestandin.ZoneUnreachable)
	b.pass(time.Minute)
	assert.Equal(t, old, p.put())
	b.pass(time.Minute)
	assert.Equal(t, 1, b.count("insert"))
}

// A reconciler that starts during an outage has never listed the zone: a Proxy without
// an observed instance is not ready, and no instance is made for it.
func TestD12StartDuringAnOutageIsNotReady(t *testing.T) {
	for _, mode := range allGaps() {
		b := newHarness(t, harnessConfig{timing: realistic()})
		p, other := b.proxy(1), b.proxy(2)
		p.req.Placement.FallbackZones = []v1alpha1.Zone{zoneU}
		other.req.Placement.Zone = zoneU
		p.running()
		want := other.running()
		b.gce.SetZone(zoneB, mode)
		b.restart()
		b.pass(5 * time.Minute)

		assert.Equal(t, want, other.put(), "seen elsewhere, so all is known about it")
		_, err := p.tryPut()
		require.ErrorIs(t, err, adapter.ErrNotReady, mode)
		if mode != gcestandin.ZoneSilent {
			assert.ErrorContains(t, err, zoneB)
		}
		_, err = b.proxy(3).tryDelete("")
		require.ErrorIs(t, err, adapter.ErrNotReady, "never Absent")
		b.pass(5 * time.Minute)
		assert.Equal(t, 2, b.count("insert"))

		b.gce.SetZone(zoneB, gcestandin.ZoneUp)
		b.pass(11 * time.Second)
		assert.Equal(t, adapter.StateRunning, p.put().State)
		assert.Equal(t, 2, b.count("insert"))
	}
}

func TestD12ZoneOfTheInsertBecomesUnreachable(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	p.req.Placement.FallbackZones = []v1alpha1.Zone{zoneC}
	b.drive()
	b.until(time.Minute, "an insert", func() bool { p.put(); return b.count("insert") == 1 })
	b.gce.SetZone(zoneB, gcestandin.ZoneUnreachable)
	b.pass(10 * time.Minute)
	p.put()
	assert.Equal(t, []string{zoneB}, b.insertZones(), "it may well be there")
	b.gce.SetZone(zoneB, gcestandin.ZoneUp)
	p.running()
}

func TestListContainsUnreachableZones(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	b.gce.SetZone(zoneU, gcestandin.ZoneUnreachable)
	b.pass(10 * time.Second)
	assert.Equal(t, []string{zoneU}, b.reconciler.List().Providers[0].UnreachableZones)
	b.gce.AddFault(gcestandin.Fault{Op: "list", Status: 500, Message: "broken"})
	b.pass(10 * time.Second)
	assert.Contains(t, b.reconciler.List().Providers[0].Message, "broken")
}

func TestSnapshotGap(t *testing.T) {
	now := time.Unix(1000, 0)
	type list struct {
		unreachable []string
		partial     bool
		answered    []string
	}
	tests := map[string]struct {
		lists []list
		ready bool
		say   string
	}{
		"complete":                                  {lists: []list{{}}, ready: true},
		"zones never listed":                        {lists: []list{{unreachable: []string{"a", "b"}}}, say: "a, b"},
		"unlisted, then listed":                     {lists: []list{{unreachable: []string{"a"}}, {}}, ready: true},
		"unlisted, then another zone unreachable":   {lists: []list{{unreachable: []string{"a"}}, {unreachable: []string{"b"}}}, ready: true},
		"listed, then unreachable":                  {lists: []list{{}, {unreachable: []string{"a"}}}, ready: true},
		"incomplete":                                {lists: []list{{partial: true, answered: []string{"a"}}}, say: "does not name"},
		"incomplete twice":                          {lists: []list{{partial: true}, {partial: true}}, say: "does not name"},
		"incomplete, then complete":                 {lists: []list{{partial: true}, {}}, ready: true},
		"complete, then incomplete":                 {lists: []list{{}, {partial: true}}, ready: true},
		"incomplete, then unlisted":                 {lists: []list{{partial: true}, {unreachable: []string{"a"}}}, say: "zone a"},
		"incomplete but answered, then unreachable": {lists: []list{{partial: true, answered: []string{"a"}}, {unreachable: []string{"a"}}}, ready: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newSnapshot()
			assert.False(t, w.listed())
			for _, l := range tt.lists {
				w.update(listing(l.unreachable, l.partial, l.answered), now)
			}
			assert.True(t, w.listed())
			err := w.gap()
			if tt.ready {
				assert.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, adapter.ErrNotReady)
			assert.ErrorContains(t, err, tt.say)
		})
	}
}

func listing(unreachable []string, partial bool, answered []string) *provider.Listing {
	l := &provider.Listing{Unreachable: unreachable, Partial: partial, Answered: map[string]bool{}}
	for _, zone := range answered {
		l.Answered[zone] = true
	}
	return l
}
