package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// syncStore updates the store with the current fleet, from which it derives which
// leases are unusable. Before the first snapshot all leases count as usable.
func (s *Server) syncStore() error {
	if _, err := s.offers.sync(); err != nil && !errors.Is(err, fleet.ErrNotSynced) {
		return err
	}
	return nil
}

// owned returns the request's lease, usable or not, or lease.ErrUnknown when it
// belongs to another token and this one is no admin's. Without authentication there
// are no owners, and the store is not asked.
func (s *Server) owned(r *http.Request) (lease.Lease, error) {
	h := callOf(r.Context()).holder
	if h == nil {
		return lease.Lease{}, nil
	}
	l, err := s.cfg.Store.Get(r.Context(), leaseID(r))
	if ended := (*lease.EndedError)(nil); errors.As(err, &ended) {
		l, err = ended.Lease, nil
	}
	if err == nil && l.Holder != h.Name && !h.Scope.Includes(access.ScopeAdmin) {
		return lease.Lease{}, lease.ErrUnknown
	}
	return l, err
}

// checkOwner is owned for calls that do not need the lease; it spares the store the
// call for an admin's token.
func (s *Server) checkOwner(r *http.Request) error {
	if h := callOf(r.Context()).holder; h != nil && h.Scope.Includes(access.ScopeAdmin) {
		return nil
	}
	_, err := s.owned(r)
	return err
}

func leaseID(r *http.Request) string { return chi.URLParam(r, "id") }

// get returns a lease.
func (s *Server) get(r *http.Request) (httpapi.Response, error) {
	if err := s.syncStore(); err != nil {
		return httpapi.Response{}, err
	}
	if err := s.checkOwner(r); err != nil {
		return httpapi.Response{}, s.storeError(err)
	}
	return s.leaseResponse(s.cfg.Store.Get(r.Context(), leaseID(r)))
}

func (s *Server) leaseResponse(l lease.Lease, err error) (httpapi.Response, error) {
	if err != nil {
		return httpapi.Response{}, s.storeError(err)
	}
	p, status := s.proxyStatus(l)
	return httpapi.Response{Status: http.StatusOK, Body: leaseStatusBody{newLeaseBody(l, p), status}}, nil
}

// proxyStatus returns the proxy of a lease with what is known of it now. The proxy is nil
// when its instance is not in the snapshot.
func (s *Server) proxyStatus(l lease.Lease) (*fleet.Proxy, proxyStatus) {
	snap, err := s.cfg.Fleet.Snapshot()
	if err != nil { // no view of the fleet is no evidence against a proxy
		return nil, proxyStatus{
			Verdict: v1alpha1.VerdictUnknown, Reason: reasonFleetUnknown, Usable: true,
			Message: "discovery has no list of the proxies yet",
		}
	}
	p := snap.Find(l.Proxy)
	if p == nil || p.Instance != l.Instance {
		return nil, proxyStatus{
			Verdict: v1alpha1.VerdictUnknown, Reason: reasonInstanceChanged,
			Message: "the proxy was replaced or deleted a moment ago; the next renewal returns 410",
		}
	}
	return p, proxyStatus(fleet.StatusOf(p, snap.Freshness))
}

// renewBody is the body of POST .../renew.
type renewBody struct {
	TTLSeconds wholeNumber `json:"ttlSeconds"`
}

// renew extends a lease, by default to the TTL that was last granted.
func (s *Server) renew(r *http.Request) (httpapi.Response, error) {
	var body renewBody
	if err := decodeOptionalBody(r, &body); err != nil {
		return httpapi.Response{}, err
	}
	ttl, err := s.leaseTTL(body.TTLSeconds)
	if err != nil {
		return httpapi.Response{}, err
	}
	if err := s.syncStore(); err != nil {
		return httpapi.Response{}, err
	}
	if err := s.checkOwner(r); err != nil {
		return httpapi.Response{}, s.storeError(err)
	}
	if !body.TTLSeconds.given() {
		l, err := s.cfg.Store.Get(r.Context(), leaseID(r))
		if err != nil {
			return httpapi.Response{}, s.storeError(err)
		}
		ttl = l.TTL
	}
	return s.leaseResponse(s.cfg.Store.Renew(r.Context(), leaseID(r), ttl))
}

// release ends a lease. It is idempotent: the answer is 204 also when there is no
// such lease, so that a client can retry.
func (s *Server) release(r *http.Request) (httpapi.Response, error) {
	l, err := s.owned(r)
	switch {
	case errors.Is(err, lease.ErrUnknown):
		return httpapi.Response{Status: http.StatusNoContent}, nil
	case err != nil:
		return httpapi.Response{}, s.storeError(err)
	}
	if err := s.cfg.Store.Release(r.Context(), leaseID(r)); err != nil {
		return httpapi.Response{}, s.storeError(err)
	}
	if h := callOf(r.Context()).holder; h != nil && l.Holder != h.Name {
		namespace, name, _ := strings.Cut(l.Proxy, "/")
		s.cfg.Log.Info("lease ended by an operator", "lease", l.ID, "namespace", namespace, "proxy", name, "holder", l.Holder, "token", h.Name)
	}
	return httpapi.Response{Status: http.StatusNoContent}, nil
}

// reportBody is the body of POST .../report.
type reportBody struct {
	Result            string      `json:"result"`
	Target            string      `json:"target"`
	RetryAfterSeconds wholeNumber `json:"retryAfterSeconds"`
}

// report accepts a crawler's result with a lease.
func (s *Server) report(r *http.Request) (httpapi.Response, error) {
	var body reportBody
	if err := decodeBody(r, &body); err != nil {
		return httpapi.Response{}, err
	}
	rep := lease.Report{Result: lease.Result(body.Result)}
	if !rep.Result.Known() {
		return httpapi.Response{}, failf(codeInvalidResult, "unknown result %q; want one of %q", clip(body.Result), lease.Results())
	}
	var err error
	if rep.Target, err = normalizeTarget(body.Target); err != nil {
		return httpapi.Response{}, err
	}
	if rep.RetryAfter, err = reportedRetryAfter(rep.Result, body.RetryAfterSeconds); err != nil {
		return httpapi.Response{}, err
	}
	if err := s.checkOwner(r); err != nil {
		return httpapi.Response{}, s.storeError(err)
	}
	if err := s.cfg.Store.Report(r.Context(), leaseID(r), rep); err != nil {
		return httpapi.Response{}, s.storeError(err)
	}
	s.cfg.Metrics.leaseReport(rep.Result)
	return httpapi.Response{Status: http.StatusNoContent}, nil
}

// reportedRetryAfter bounds the length of a cooldown that a report names.
func reportedRetryAfter(result lease.Result, seconds wholeNumber) (time.Duration, error) {
	const most = int64(lease.MaxRetryAfter / time.Second)
	switch {
	case !seconds.given():
		return 0, nil
	case !result.TakesRetryAfter():
		return 0, failf(codeInvalidRequest, "retryAfterSeconds is for rate_limited and banned; leave it out of a report of %s", result)
	case seconds.value < 1:
		return 0, failf(codeInvalidRequest, "retryAfterSeconds is %s; want 1 or more; above %d it counts as that", clip(seconds.text), most)
	}
	return time.Duration(min(seconds.value, most)) * time.Second, nil
}

// leaseBody is a lease in answers.
type leaseBody struct {
	LeaseID      string      `json:"leaseID"`
	Proxy        leasedProxy `json:"proxy"`
	ExpiresAt    time.Time   `json:"expiresAt"`
	TTLSeconds   int64       `json:"ttlSeconds"`
	Target       string      `json:"target"`
	Session      string      `json:"session,omitempty"`
	FencingToken uint64      `json:"fencingToken"`
}

// leaseStatusBody is the answer to GET and renew of a lease.
type leaseStatusBody struct {
	leaseBody
	ProxyStatus proxyStatus `json:"proxyStatus"`
}

// proxyStatus is a fleet.Status.
type proxyStatus struct {
	Verdict v1alpha1.Verdict `json:"verdict"`
	Reason  string           `json:"reason"`
	Usable  bool             `json:"usable"`
	Message string           `json:"message"`
}

// Reasons of a proxyStatus for a lease whose instance is not in the snapshot.
const (
	reasonFleetUnknown    = "FleetUnknown"
	reasonInstanceChanged = "InstanceChanged"
)

// leasedProxy has no host, port and attributes while its instance is not in the
// snapshot.
type leasedProxy struct {
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Host       string            `json:"host,omitempty"`
	Port       int32             `json:"port,omitempty"`
	Attributes map[string]string `json:"attributes,omitzero"`
}

// newLeaseBody takes nil for a proxy that is not in the snapshot.
func newLeaseBody(l lease.Lease, p *fleet.Proxy) leaseBody {
	namespace, name, _ := strings.Cut(l.Proxy, "/")
	out := leaseBody{
		LeaseID:      l.ID,
		Proxy:        leasedProxy{Name: name, Namespace: namespace},
		ExpiresAt:    roundDown(l.ExpiresAt),
		TTLSeconds:   int64(l.TTL / time.Second),
		Target:       l.Target,
		Session:      l.Session,
		FencingToken: l.FencingToken,
	}
	if p != nil {
		out.Proxy.Host, out.Proxy.Port, out.Proxy.Attributes = p.Host, p.Port, p.Attributes
	}
	return out
}
