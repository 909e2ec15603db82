package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func replacedInstance(t *testing.T, s *subject) {
	old, replaced := proxy(1, 1), proxy(1, 1)
	replaced.ID = "instance-new"
	first := s.acquire("", old)
	assert.Equal(t, 0, s.active(replaced.Instance))
	second := s.acquire("", replaced)
	s.release(first.ID)
	s.refused("", replaced)
	assert.Equal(t, 1, s.active(replaced.Instance), "the old instance's release is not the new one's")

	s.report(second.ID, lease.ResultBanned, "")
	s.release(second.ID)
	assert.Equal(t, 1, s.refused("", old).InCooldown, "cooldowns belong to the Proxy, not to its instance")
}

func instanceGone(t *testing.T, s *subject) {
	at := func(n int, id string) *lease.Offer {
		c := *proxy(n, 1)
		c.ID = id
		return &lease.Offer{Candidate: c, Leasable: id != ""}
	}
	s.offer(at(1, "old"))
	l := s.grant(request("example.com"))
	got, err := s.store.Get(t.Context(), l.ID)
	require.NoError(t, err)
	assert.Equal(t, "old", got.Instance.ID)

	s.offer(at(1, ""))
	s.ended(l, lease.EndGone)
	s.offer(at(1, "new"))
	s.ended(l, lease.EndReplaced)
	next := s.grant(request(""))
	assert.Equal(t, "new", next.Instance.ID, "the old lease's place is not the new instance's")
	_, err = s.store.Renew(t.Context(), next.ID, time.Minute)
	require.NoError(t, err)

	s.offer(&lease.Offer{Candidate: at(1, "new").Candidate})
	_, err = s.store.Renew(t.Context(), next.ID, time.Minute)
	require.NoError(t, err, "an unhealthy instance is still the instance")

	s.gone(l.Instance.ProxyUID)
	s.ended(l, lease.EndDeleted)
	s.ended(next, lease.EndDeleted)
	s.report(next.ID, lease.ResultBanned, "")
	s.release(next.ID)
	_, err = s.store.Get(t.Context(), next.ID)
	assert.ErrorIs(t, err, lease.ErrUnknown)
}

func identity(t *testing.T, s *subject) {
	before, after := proxy(1, 1), proxy(2, 1)
	after.Proxy = before.Proxy
	l := s.acquire("", before)
	s.report(l.ID, lease.ResultBanned, "")
	again := s.acquire("", after)
	assert.Equal(t, after.Instance, again.Instance, "a Proxy re-created under its old name starts afresh")
}
