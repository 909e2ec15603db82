package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// TestGrantIsJournaledWhole follows the record of a lease from its grant to its release.
func TestGrantIsJournaledWhole(t *testing.T) {
	g, k := small(1)
	req := lease.Request{TTL: time.Minute, Holder: "h", Target: "a.example", Key: "k", Fingerprint: "f"}
	l, err := g.Acquire(start, req)
	require.NoError(t, err)
	o := testOffer(0)
	want := lease.Lease{
		ID: l.ID, Instance: o.Instance, Proxy: o.Proxy, Holder: "h", Target: "a.example",
		TTL: time.Minute, GrantedAt: start, ExpiresAt: start.Add(time.Minute), FencingToken: 1,
	}
	assert.Equal(t, want, l)
	assert.Equal(t, map[string]Record{l.ID: {Lease: want, Key: "k", Fingerprint: "f"}}, k.leases)

	want.TTL, want.ExpiresAt = time.Hour, start.Add(time.Second+time.Hour)
	renewed, err := g.Renew(start.Add(time.Second), l.ID, time.Hour)
	require.NoError(t, err)
	assert.Equal(t, want, renewed)
	assert.Equal(t, want, k.leases[l.ID].Lease)
	assert.True(t, g.Release(start, l.ID))
	assert.False(t, g.Release(start, l.ID))
	assert.Empty(t, k.leases)
	assert.Empty(t, g.keys)
	require.NoError(t, g.Check())
}

func TestReplayReturnsTheRunningLeaseOfTheKey(t *testing.T) {
	g, _ := small(2)
	req := lease.Request{TTL: time.Minute, Holder: "h", Key: "k", Fingerprint: "f"}
	first, err := g.Acquire(start, req)
	require.NoError(t, err)
	again, err := g.Acquire(start.Add(time.Second), req)
	require.NoError(t, err)
	assert.True(t, again.Replayed)
	again.Replayed = false
	assert.Equal(t, first, again)
	stored, err := g.Get(start, first.ID)
	require.NoError(t, err)
	assert.False(t, stored.Replayed, "the stored lease is unchanged")

	other := req
	other.Fingerprint = "g"
	_, err = g.Acquire(start, other)
	require.ErrorIs(t, err, lease.ErrKeyReused)
	other.Holder = "another"
	_, err = g.Acquire(start, other)
	require.NoError(t, err, "a key belongs to its holder")

	next, err := g.Acquire(first.ExpiresAt, req)
	require.NoError(t, err)
	assert.NotEqual(t, first.ID, next.ID, "the key is free after the expiry")
	assert.False(t, next.Replayed)
	require.NoError(t, g.Check())
}

func TestGetOfUnknownAndExpiredLeases(t *testing.T) {
	g, _ := small(1)
	_, err := g.Get(start, "no-such-lease")
	require.ErrorIs(t, err, lease.ErrUnknown)
	l, err := g.Acquire(start, lease.Request{TTL: time.Minute, Holder: "h"})
	require.NoError(t, err)
	_, err = g.Get(l.ExpiresAt.Add(-time.Nanosecond), l.ID)
	require.NoError(t, err)
	var ended *lease.EndedError
	_, err = g.Renew(l.ExpiresAt, l.ID, time.Hour)
	require.ErrorAs(t, err, &ended)
	assert.Equal(t, lease.EndExpired, ended.Reason)
	assert.Equal(t, l.Proxy, ended.Lease.Proxy)
	_, err = g.Get(l.ExpiresAt.Add(10*time.Minute), l.ID)
	require.ErrorIs(t, err, lease.ErrUnknown, "no longer than reports are taken")
}

func TestFullSessionProxyIsWaitedFor(t *testing.T) {
	g, _ := small(2)
	for range testOffer(0).MaxLeases {
		_, err := g.Acquire(start, inSession(time.Minute))
		require.NoError(t, err)
	}
	_, err := g.Acquire(start, inSession(time.Minute))
	var none *lease.NoMatchError
	require.ErrorAs(t, err, &none)
	assert.Equal(t, lease.Stats{Considered: 1, AtCapacity: 1, CapacityFreeAt: start.Add(time.Minute)}, none.Stats)
	_, err = g.Acquire(start, lease.Request{TTL: time.Minute})
	require.NoError(t, err, "the other proxy has free slots")
}
