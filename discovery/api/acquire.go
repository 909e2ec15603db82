package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// storeTimeout bounds a grant. It does not end with the request: a store that is
// interrupted cannot say whether it has granted, and the lease would be nobody's.
const storeTimeout = 10 * time.Second

// tryPause is the least time between two tries of a request that waits, unless
// something happens.
const tryPause = 50 * time.Millisecond

// acquire grants a lease.
func (s *Server) acquire(r *http.Request) (response, error) {
	res, err := s.tryAcquire(r)
	s.metrics.leaseRequest(err)
	return res, err
}

func (s *Server) tryAcquire(r *http.Request) (response, error) {
	req, err := s.decodeAcquire(r)
	if err != nil {
		return response{}, err
	}
	g, err := s.grantWithin(r.Context(), req)
	if err != nil {
		return response{}, err
	}
	if r.Context().Err() != nil && !mayBeInUse(g.lease, req.Request) {
		s.giveBack(r.Context(), g.lease)
		return response{}, failf(codeNotReady, "the client is gone, and so is its lease") // told to nobody
	}
	s.log.Info("lease granted", "lease", g.lease.ID, "namespace", g.proxy.Namespace, "proxy", g.proxy.Name,
		"target", g.lease.Target, "ttl", g.lease.TTL.String(), "token", g.lease.Holder, "again", g.lease.Replayed)
	return response{
		status: http.StatusCreated,
		header: http.Header{"Location": {"/v1/leases/" + g.lease.ID}},
		body:   newGrantBody(g),
	}, nil
}

// refused is why a try was in vain, with what is needed to tell it.
type refused struct {
	*lease.NoMatchError
	snap fleet.Snapshot
}

// grantWithin grants a lease now, or as soon as there is a proxy within the time
// that the request is ready to wait.
func (s *Server) grantWithin(ctx context.Context, req acquireRequest) (granted, error) {
	deadline := s.clock.Now().Add(req.wait)
	for first := true; ; first = false {
		freed, changed := s.store.Freed(), s.fleet.Changed()
		g, err := s.grant(ctx, req)
		var none *refused
		if !errors.As(err, &none) {
			return g, err
		}
		until := s.nextTry(none.FreeAt(), deadline)
		if !s.clock.Now().Before(deadline) {
			return granted{}, s.explain(none, req)
		}
		if first {
			ok, leave := s.seat()
			if !ok {
				return granted{}, s.explain(none, req)
			}
			defer leave()
			s.metrics.waiting.Inc()
			defer s.metrics.waiting.Dec()
			callOf(ctx).mayWait()
		}
		if !s.await(ctx, until, freed, changed) {
			return granted{}, elsewhere(s.explain(none, req))
		}
	}
}

// explain makes the 409 of a request that was refused.
func (s *Server) explain(none *refused, req acquireRequest) error {
	return s.census.of(none.snap, req).refuse(none.snap.Freshness, none.Stats, req, s.clock.Now())
}

// maxWaiting is how many requests may wait at once. Each costs memory and a
// connection while it waits, and time when it is woken; what is beyond is answered
// as if it was not ready to wait.
const maxWaiting = 4096

// seat takes one of the places for those who wait, if one is free. It is to be left
// by calling leave.
func (s *Server) seat() (ok bool, leave func()) {
	select {
	case s.seats <- struct{}{}:
		return true, func() { <-s.seats }
	default:
		return false, nil
	}
}

// elsewhere has a request whose wait ends before its time, since this server is
// about to stop, come back at once: another one, or the next, has it wait on.
func elsewhere(err error) error {
	var e *apiError
	if errors.As(err, &e) {
		e.retryAfter = time.Second
	}
	return err
}

// nextTry is when to try again if nothing happens before: when a proxy is free,
// but a moment from now at the soonest, since the store's clock may not be ours.
func (s *Server) nextTry(free, deadline time.Time) time.Time {
	if free.IsZero() || free.After(deadline) {
		return deadline
	}
	if soonest := s.clock.Now().Add(tryPause); free.Before(soonest) {
		return soonest
	}
	return free
}

// await waits until one of the channels is closed or a time has come. It returns
// false when the client is gone or the server is about to stop.
func (s *Server) await(ctx context.Context, until time.Time, a, b <-chan struct{}) bool {
	timer := s.clock.NewTimer(max(0, until.Sub(s.clock.Now())))
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

// grant has the store choose, and then reads the chosen proxy's credentials.
// Where that fails the lease is given back and the next proxy is tried. It
// returns a *refused when there is none.
func (s *Server) grant(ctx context.Context, req acquireRequest) (granted, error) {
	var failed credentialFailures
	ask := req.Request
	for {
		snap, err := s.offers.sync()
		if err != nil {
			return granted{}, err
		}
		l, err := s.askStore(ctx, ask)
		var none *lease.NoMatchError
		switch {
		case errors.As(err, &none) && len(failed) > 0:
			return granted{}, failed.err()
		case errors.As(err, &none):
			return granted{}, &refused{NoMatchError: none, snap: snap}
		case err != nil:
			return granted{}, s.storeError(err)
		}
		proxy := s.findLeased(l)
		if proxy == nil {
			s.giveBack(ctx, l)
			continue // the next turn tells the store
		}
		user, err := s.userinfo(ctx, proxy)
		if err == nil {
			return granted{lease: l, proxy: proxy, user: user}, nil
		}
		s.log.Warn("lease not granted: the proxy's credentials cannot be read",
			"namespace", proxy.Namespace, "proxy", proxy.Name, "secret", proxy.CredentialsSecret, "err", err)
		failed = append(failed, credentialFailure{proxy: proxy, err: err})
		if l.Replayed || ctx.Err() != nil && mayBeInUse(l, req.Request) {
			return granted{}, failed.err()
		}
		s.giveBack(ctx, l)
		if ctx.Err() != nil || len(failed) == maxCredentialFailures {
			return granted{}, failed.err()
		}
		ask.Exclude = append(ask.Exclude, sharing(snap, proxy)...)
	}
}

func (s *Server) askStore(ctx context.Context, ask lease.Request) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return s.store.Acquire(ctx, ask)
}

// findLeased returns the proxy that a lease is on, nil when it has changed so
// much since the store was told of it that the lease leads nowhere.
func (s *Server) findLeased(l lease.Lease) *fleet.Proxy {
	snap, err := s.fleet.Snapshot()
	if err != nil {
		return nil
	}
	p := snap.Find(l.Proxy)
	if p == nil || p.Instance != l.Instance {
		return nil
	}
	return p
}

// mayBeInUse reports whether somebody may have a lease whose client is gone. Under
// a key the client may have asked again meanwhile, and have been told of the lease
// before we notice that the first connection is no more.
func mayBeInUse(l lease.Lease, req lease.Request) bool { return l.Replayed || req.Key != "" }

// giveBack ends a lease that never reached its holder.
func (s *Server) giveBack(ctx context.Context, l lease.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := s.store.Release(ctx, l.ID); err != nil {
		s.log.Error("cannot give back a lease, it runs until it expires", "lease", l.ID, "err", err)
	}
}

// storeError marks an error that lease.Store does not name as what it means, so
// that it is answered with 503 and not with 500.
func (s *Server) storeError(err error) error {
	var ended *lease.EndedError
	var full *lease.LimitError
	switch {
	case errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrKeyReused) || errors.As(err, &ended):
		return err
	case errors.As(err, &full):
		return s.limited(full)
	}
	return &apiError{code: codeStoreUnavailable, detail: "the lease store cannot answer now and nothing was granted; try again", cause: err}
}

// limited says what there is no room for, and when there is.
func (s *Server) limited(full *lease.LimitError) error {
	err := failf(codeTooManyCooldowns, "the report was not taken, and no cooldown gives way to it: %v; wait as told and report again, or leave this proxy out with exclude", full)
	if full.Limit == lease.LimitSessions {
		err = failf(codeTooManySessions, "the session is new, and no other gives way to it: %v; use sessions again, release leases early, or lease without a session", full)
	}
	err.retryAfter = max(time.Second, full.FreeAt.Sub(s.clock.Now()))
	return err
}
