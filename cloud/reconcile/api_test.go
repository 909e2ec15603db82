package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
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
