package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// subject is a store under test with helpers around it.
type subject struct {
	*testing.T
	clock       *clocktesting.FakeClock
	store       lease.Store
	reopenStore func(t *testing.T) lease.Store
	told        map[string]*lease.Offer // last offer by Proxy UID
}

// fleet makes these proxies, and no others, leasable.
func (s *subject) fleet(candidates ...*lease.Candidate) {
	offers := make([]*lease.Offer, len(candidates))
	for i, c := range candidates {
		offers[i] = &lease.Offer{Candidate: *c, Leasable: true}
	}
	s.offer(offers...)
}

// offer makes these offers the only ones with leasable proxies.
func (s *subject) offer(offers ...*lease.Offer) {
	var change lease.Offers
	keep := map[string]bool{}
	for _, o := range offers {
		keep[o.ProxyUID] = true
		change.Changed = append(change.Changed, o)
		s.told[o.ProxyUID] = o
	}
	for uid, o := range s.told {
		if !keep[uid] && o.Leasable {
			off := *o
			off.Leasable = false
			s.told[uid] = &off
			change.Changed = append(change.Changed, &off)
		}
	}
	s.store.Offer(change)
}

// gone deletes Proxies.
func (s *subject) gone(uids ...string) {
	for _, uid := range uids {
		delete(s.told, uid)
	}
	s.store.Offer(lease.Offers{Gone: uids})
}

// reopen crashes the store and offers the fleet to the new one.
func (s *subject) reopen() {
	s.Helper()
	s.store = s.reopenStore(s.T)
	var all lease.Offers
	for _, o := range s.told {
		all.Changed = append(all.Changed, o)
	}
	s.store.Offer(all)
}

// proxy is a candidate named after n, one of any number.
func proxy(n, maxLeases int) *lease.Candidate {
	return &lease.Candidate{
		Instance:      lease.Instance{ProxyUID: fmt.Sprintf("uid-%03d", n), ID: fmt.Sprintf("instance-%03d", n)},
		Proxy:         fmt.Sprintf("crawl/proxy-%03d", n),
		MaxLeases:     maxLeases,
		LatencyMillis: 20,
		Scheme:        "http",
	}
}

func proxies(count, maxLeases int) []*lease.Candidate {
	out := make([]*lease.Candidate, count)
	for i := range out {
		out[i] = proxy(i, maxLeases)
	}
	return out
}

// request asks for any proxy, for a minute.
func request(target string) lease.Request {
	return lease.Request{Target: target, TTL: time.Minute}
}

// acquire wants a grant of one of these proxies and no other.
func (s *subject) acquire(target string, candidates ...*lease.Candidate) lease.Lease {
	s.Helper()
	s.fleet(candidates...)
	return s.grant(request(target))
}

// grant wants a grant.
func (s *subject) grant(req lease.Request) lease.Lease {
	s.Helper()
	l, err := s.store.Acquire(context.Background(), req)
	require.NoError(s, err)
	return l
}

// refused wants a NoMatchError when these are all that there is.
func (s *subject) refused(target string, candidates ...*lease.Candidate) lease.Stats {
	s.Helper()
	s.fleet(candidates...)
	return s.refusal(request(target))
}

// refusal wants a NoMatchError.
func (s *subject) refusal(req lease.Request) lease.Stats {
	s.Helper()
	l, err := s.store.Acquire(context.Background(), req)
	var none *lease.NoMatchError
	require.ErrorAs(s, err, &none)
	require.Empty(s, l, "nothing is granted along with an error")
	assert.Equal(s, none.Considered, none.AtCapacity+none.InCooldown, "the counts add up")
	return none.Stats
}

// ended wants Get and Renew to return this reason.
func (s *subject) ended(l lease.Lease, reason lease.EndReason) {
	s.Helper()
	_, err := s.store.Get(context.Background(), l.ID)
	var ended *lease.EndedError
	require.ErrorAs(s, err, &ended)
	assert.Equal(s, reason, ended.Reason)
	assert.Equal(s, l.Proxy, ended.Lease.Proxy)
	_, err = s.store.Renew(context.Background(), l.ID, time.Hour)
	require.ErrorAs(s, err, &ended)
	assert.Equal(s, reason, ended.Reason)
}

func (s *subject) release(id string) {
	s.Helper()
	require.NoError(s, s.store.Release(context.Background(), id))
}

func (s *subject) report(id string, result lease.Result, target string) {
	s.Helper()
	require.NoError(s, s.reportErr(id, result, target))
}

func (s *subject) reportErr(id string, result lease.Result, target string) error {
	return s.store.Report(context.Background(), id, lease.Report{Result: result, Target: target})
}

func (s *subject) get(id string) lease.Lease {
	s.Helper()
	l, err := s.store.Get(context.Background(), id)
	require.NoError(s, err)
	return l
}

func (s *subject) renew(id string, ttl time.Duration) lease.Lease {
	s.Helper()
	l, err := s.store.Renew(context.Background(), id, ttl)
	require.NoError(s, err)
	return l
}

// unknown wants that no lease has this id.
func (s *subject) unknown(id string) {
	s.Helper()
	_, err := s.store.Get(context.Background(), id)
	require.ErrorIs(s, err, lease.ErrUnknown)
	_, err = s.store.Renew(context.Background(), id, time.Minute)
	require.ErrorIs(s, err, lease.ErrUnknown)
}

func (s *subject) usage() lease.Usage {
	s.Helper()
	u, err := s.store.Usage(context.Background())
	require.NoError(s, err)
	return u
}

func (s *subject) active(i lease.Instance) int { return s.usage().Active[i] }

func (s *subject) total() int { return s.usage().Total() }

// needsReopen skips the test for stores that keep nothing.
func (s *subject) needsReopen() {
	if s.reopenStore == nil {
		s.Skip("this store keeps nothing")
	}
}

// woken wants that a channel of waiting goroutines is closed, because of what.
func (s *subject) woken(what string, c <-chan struct{}) {
	s.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		require.Fail(s, what+" wakes no waiter")
	}
}

func isNoMatch(err error) bool { return errors.As(err, new(*lease.NoMatchError)) }

func isFull(err error) bool { return errors.As(err, new(*lease.LimitError)) }

func assertSameLease(t *testing.T, want, got lease.Lease) {
	t.Helper()
	assert.True(t, want.ExpiresAt.Equal(got.ExpiresAt))
	assert.True(t, want.GrantedAt.Equal(got.GrantedAt))
	want.ExpiresAt, want.GrantedAt, want.Ended = got.ExpiresAt, got.GrantedAt, got.Ended
	assert.Equal(t, want, got)
}
