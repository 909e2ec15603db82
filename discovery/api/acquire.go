package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

const (
	// storeTimeout bounds a grant. A grant does not end with the request: after an
	// interrupted call it is unknown whether the store has granted a lease, which
	// would then have no holder.
	storeTimeout = 10 * time.Second
	// minRetryPause is the least time between two attempts of a waiting request,
	// unless something changes.
	minRetryPause = 50 * time.Millisecond
	// maxWaiting is how many requests may wait at once. Each costs memory and a
	// connection while it waits, and CPU when it is woken; further requests are
	// answered as if they had no wait.
	maxWaiting = 4096
)

// acquire grants a lease.
func (s *Server) acquire(r *http.Request) (httpapi.Response, error) {
	res, err := s.tryAcquire(r)
	s.cfg.Metrics.leaseRequest(err)
	return res, err
}

func (s *Server) tryAcquire(r *http.Request) (httpapi.Response, error) {
	req, err := s.decodeAcquire(r)
	if err != nil {
		return httpapi.Response{}, err
	}
	g, err := s.grantWithin(r.Context(), req)
	if err != nil {
		return httpapi.Response{}, err
	}
	if r.Context().Err() != nil && !mayBeInUse(g.replayed, req) {
		s.giveBack(r.Context(), g.LeaseID)
		return httpapi.Response{}, disconnected()
	}
	s.cfg.Log.Info("lease granted", "lease", g.LeaseID, "namespace", g.Proxy.Namespace, "proxy", g.Proxy.Name,
		"target", g.Target, "ttl", (time.Duration(g.TTLSeconds) * time.Second).String(), "token", req.Holder, "again", g.replayed)
	return httpapi.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Location": {"/v1/leases/" + g.LeaseID}},
		Body:   g,
	}, nil
}

// refused is a failed attempt, with the snapshot that explains it.
type refused struct {
	*lease.NoMatchError
	snap fleet.Snapshot
}

// grantWithin grants a lease at once, or as soon as a proxy becomes free within the
// request's wait. Without waitForMatch it does not wait when no proxy can become free.
func (s *Server) grantWithin(ctx context.Context, req acquireRequest) (grantBody, error) {
	deadline := s.cfg.Clock.Now().Add(req.wait)
	for first := true; ; first = false {
		freed, changed := s.cfg.Store.Freed(), s.cfg.Fleet.Changed()
		g, err := s.grant(ctx, req)
		var none *refused
		if !errors.As(err, &none) {
			return g, err
		}
		until := s.nextAttempt(none.FreeAt(), deadline)
		if !s.cfg.Clock.Now().Before(deadline) {
			return grantBody{}, s.noMatch(none, req)
		}
		if first {
			if why := s.noMatchToWaitFor(none, req); why != nil {
				return grantBody{}, why
			}
			ok, leave := s.takeWaitSlot(ctx)
			if !ok {
				return grantBody{}, s.noMatch(none, req)
			}
			defer leave()
			s.cfg.Metrics.waiting.Inc()
			defer s.cfg.Metrics.waiting.Dec()
		}
		if !s.await(ctx, until, freed, changed) {
			return grantBody{}, retryElsewhere(s.noMatch(none, req))
		}
	}
}

// noMatch is the 409 for a refused request.
func (s *Server) noMatch(none *refused, req acquireRequest) *apiError {
	return countNotOffered(none.snap, req).refuse(none.snap.Freshness, none.Stats, req, s.cfg.Clock.Now())
}

// noMatchToWaitFor returns the 409 when waiting is useless until a Proxy is edited, and the
// client did not ask for that. Otherwise it returns nil.
func (s *Server) noMatchToWaitFor(none *refused, req acquireRequest) *apiError {
	if req.waitForMatch || none.Considered > 0 {
		return nil
	}
	if why := s.noMatch(none, req); why.retryAfter == 0 {
		return why
	}
	return nil
}

// takeWaitSlot takes one of the maxWaiting slots, if one is free; leave frees it.
func (s *Server) takeWaitSlot(ctx context.Context) (ok bool, leave func()) {
	select {
	case s.waitSlots <- struct{}{}:
		callOf(ctx).mayWait()
		return true, func() { <-s.waitSlots }
	default:
		return false, nil
	}
}

// retryElsewhere has a client whose wait ends early, since this server stops, retry
// in a second: another replica, or the restarted one, lets it wait on.
func retryElsewhere(err *apiError) error {
	err.retryAfter = time.Second
	return err
}

// nextAttempt is when to retry if nothing happens before: when a proxy becomes free,
// but not at once, since the store's clock may differ from ours.
func (s *Server) nextAttempt(free, deadline time.Time) time.Time {
	if free.IsZero() || free.After(deadline) {
		return deadline
	}
	if soonest := s.cfg.Clock.Now().Add(minRetryPause); free.Before(soonest) {
		return soonest
	}
	return free
}

// await waits until a channel is closed or the time has come. It returns false when
// the client has disconnected or the server drains.
func (s *Server) await(ctx context.Context, until time.Time, a, b <-chan struct{}) bool {
	timer := s.cfg.Clock.NewTimer(max(0, until.Sub(s.cfg.Clock.Now())))
	defer timer.Stop()
	select {
	case <-a:
	case <-b:
	case <-timer.C():
	case <-ctx.Done():
		return false
	case <-s.draining:
		return false
	}
	return true
}

// grant lets the store choose a proxy, then reads the proxy's credentials. When they
// cannot be read it releases the lease and tries the next proxy. It returns *refused
// when there is none.
func (s *Server) grant(ctx context.Context, req acquireRequest) (grantBody, error) {
	var failed credentialFailures
	ask := req.Request
	for {
		snap, err := s.offers.sync()
		if err != nil {
			return grantBody{}, err
		}
		l, err := s.acquireFromStore(ctx, ask)
		var none *lease.NoMatchError
		switch {
		case errors.As(err, &none) && len(failed) > 0:
			return grantBody{}, failed.err()
		case errors.As(err, &none):
			return grantBody{}, &refused{NoMatchError: none, snap: snap}
		case err != nil:
			return grantBody{}, s.storeError(err)
		}
		proxy := s.findLeased(l)
		if proxy == nil {
			s.giveBack(ctx, l.ID)
			continue // the next sync updates the store
		}
		user, err := s.login(ctx, proxy)
		if err == nil {
			return newGrantBody(l, proxy, user), nil
		}
		if ctx.Err() != nil {
			if !mayBeInUse(l.Replayed, req) {
				s.giveBack(ctx, l.ID)
			}
			return grantBody{}, disconnected()
		}
		s.cfg.Log.Warn("lease not granted: the proxy's credentials cannot be read",
			"namespace", proxy.Namespace, "proxy", proxy.Name, "secret", proxy.CredentialsSecret, "err", err)
		failed = append(failed, credentialFailure{proxy: proxy, err: err})
		if l.Replayed {
			return grantBody{}, failed.err()
		}
		s.giveBack(ctx, l.ID)
		if len(failed) == maxCredentialFailures {
			return grantBody{}, failed.err()
		}
		ask.Exclude = append(ask.Exclude, sharingSecret(snap, proxy)...)
	}
}

func (s *Server) acquireFromStore(ctx context.Context, ask lease.Request) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return s.cfg.Store.Acquire(ctx, ask)
}

// findLeased returns the proxy of a lease, nil when its instance has changed since
// the store's last update, so that the lease is unusable.
func (s *Server) findLeased(l lease.Lease) *fleet.Proxy {
	snap, err := s.cfg.Fleet.Snapshot()
	if err != nil {
		return nil
	}
	p := snap.Find(l.Proxy)
	if p == nil || p.Instance != l.Instance {
		return nil
	}
	return p
}

// mayBeInUse reports whether the lease of a disconnected client may be in use. Under
// a key the client may have retried, and got the lease, before the server notices
// that the first connection is closed.
func mayBeInUse(replayed bool, req acquireRequest) bool { return replayed || req.Key != "" }

// giveBack releases a lease that never reached its holder.
func (s *Server) giveBack(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := s.cfg.Store.Release(ctx, id); err != nil {
		s.cfg.Log.Error("cannot release an undelivered lease, it stays active until it expires", "lease", id, "err", err)
	}
}
