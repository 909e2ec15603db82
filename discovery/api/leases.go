package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// tellFleet tells the store how the fleet is now, so that it knows which leases
// lead nowhere. While the fleet is not known, all are taken for good.
func (s *Server) tellFleet() error {
	if _, err := s.offers.sync(); err != nil && !errors.Is(err, fleet.ErrNotSynced) {
		return err
	}
	return nil
}

// own refuses leases that were granted to another token, unless the one at hand
// may end everybody's. Such a lease is as good as unknown.
func (s *Server) own(r *http.Request) error {
	h := callOf(r.Context()).holder
	if h == nil || h.Scope.Includes(access.ScopeAdmin) {
		return nil
	}
	l, err := s.find(r)
	if err == nil && l.Holder != h.Name {
		return lease.ErrUnknown
	}
	return err
}

// find returns a lease that is known, whether or not it can be used.
func (s *Server) find(r *http.Request) (lease.Lease, error) {
	l, err := s.store.Get(r.Context(), leaseID(r))
	var ended *lease.EndedError
	if errors.As(err, &ended) {
		return ended.Lease, nil
	}
	return l, err
}

// noteInterference has the log tell who ended whose lease, when that is not the
// same.
func (s *Server) noteInterference(r *http.Request, l lease.Lease) {
	h := callOf(r.Context()).holder
	if h == nil || l.Holder == h.Name {
		return
	}
	namespace, name, _ := strings.Cut(l.Proxy, "/")
	s.log.Info("lease ended by an operator", "lease", l.ID, "namespace", namespace, "proxy", name, "holder", l.Holder, "token", h.Name)
}

func leaseID(r *http.Request) string { return chi.URLParam(r, "id") }

// get tells how a lease stands.
func (s *Server) get(r *http.Request) (response, error) {
	if err := s.tellFleet(); err != nil {
		return response{}, err
	}
	if err := s.own(r); err != nil {
		return response{}, s.storeError(err)
	}
	l, err := s.store.Get(r.Context(), leaseID(r))
	if err != nil {
		return response{}, s.storeError(err)
	}
	return response{status: http.StatusOK, body: newLeaseBody(l, s.findLeased(l))}, nil
}

// renew has a lease run on.
func (s *Server) renew(r *http.Request) (response, error) {
	var ttlSeconds wholeNumber
	if err := decodeOptionalBody(r, fields{"ttlSeconds": &ttlSeconds}); err != nil {
		return response{}, err
	}
	ttl, err := s.leaseTTL(ttlSeconds)
	if err != nil {
		return response{}, err
	}
	if err := s.tellFleet(); err != nil {
		return response{}, err
	}
	if err := s.own(r); err != nil {
		return response{}, s.storeError(err)
	}
	l, err := s.renewFor(r, ttl, ttlSeconds.given())
	if err != nil {
		return response{}, s.storeError(err)
	}
	return response{status: http.StatusOK, body: newLeaseBody(l, s.findLeased(l))}, nil
}

// renewFor renews for ttl if that was asked for, else for as long as the lease
// was granted for.
func (s *Server) renewFor(r *http.Request, ttl time.Duration, given bool) (lease.Lease, error) {
	if !given {
		l, err := s.store.Get(r.Context(), leaseID(r))
		if err != nil {
			return lease.Lease{}, err
		}
		ttl = l.TTL
	}
	return s.store.Renew(r.Context(), leaseID(r), ttl)
}

// release ends a lease. The answer is 204 also when there is no such lease: it
// is over, as asked, and a client that did not get the first answer may ask
// again.
func (s *Server) release(r *http.Request) (response, error) {
	l, err := s.toEnd(r)
	switch {
	case errors.Is(err, lease.ErrUnknown):
		return response{status: http.StatusNoContent}, nil
	case err != nil:
		return response{}, s.storeError(err)
	}
	if err := s.store.Release(r.Context(), leaseID(r)); err != nil {
		return response{}, s.storeError(err)
	}
	s.noteInterference(r, l)
	return response{status: http.StatusNoContent}, nil
}

// toEnd returns the lease that is to be released, if the token at hand may do that.
// Where there are no tokens nobody has to be asked whose it is.
func (s *Server) toEnd(r *http.Request) (lease.Lease, error) {
	h := callOf(r.Context()).holder
	if h == nil {
		return lease.Lease{}, nil
	}
	l, err := s.find(r)
	if err == nil && l.Holder != h.Name && !h.Scope.Includes(access.ScopeAdmin) {
		return lease.Lease{}, lease.ErrUnknown
	}
	return l, err
}

// report takes a crawler's word on how it fared.
func (s *Server) report(r *http.Request) (response, error) {
	var result, target string
	if err := decodeBody(r, fields{"result": &result, "target": &target}); err != nil {
		return response{}, err
	}
	rep := lease.Report{Result: lease.Result(result)}
	if !rep.Result.Known() {
		return response{}, failf(codeInvalidResult, "result %q is not known; want one of %q", clip(result), lease.Results())
	}
	var err error
	if rep.Target, err = normalizeTarget(target); err != nil {
		return response{}, err
	}
	if err := s.own(r); err != nil {
		return response{}, s.storeError(err)
	}
	if err := s.store.Report(r.Context(), leaseID(r), rep); err != nil {
		return response{}, s.storeError(err)
	}
	s.metrics.leaseReport(rep.Result)
	return response{status: http.StatusNoContent}, nil
}
