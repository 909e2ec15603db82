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
