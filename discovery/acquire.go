package discovery

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// acquireRequest is the checked body of POST /v1/leases.
type acquireRequest struct {
	selector map[string]string
	ttl      time.Duration
	target   string
}

// grantBody is the answer to a granted POST /v1/leases. It alone ever holds
// credentials, in ProxyURL.
type grantBody struct {
	LeaseID      string      `json:"leaseID"`
	Proxy        leasedProxy `json:"proxy"`
	ProxyURL     string      `json:"proxyURL"`
	ExpiresAt    time.Time   `json:"expiresAt"`
	TTLSeconds   int64       `json:"ttlSeconds"`
	Target       string      `json:"target"`
	FencingToken uint64      `json:"fencingToken"`
}

type leasedProxy struct {
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Host       string            `json:"host"`
	Port       int32             `json:"port"`
	Attributes map[string]string `json:"attributes"`
}

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
	l, proxy, user, err := s.grant(r.Context(), req)
	if err != nil {
		return response{}, err
	}
	s.log.Info("lease granted", "lease", l.ID, "namespace", proxy.Namespace, "proxy", proxy.Name, "target", l.Target, "ttl", l.TTL.String())
	return response{
		status: http.StatusCreated,
		header: http.Header{"Location": {"/v1/leases/" + l.ID}},
		body:   newGrantBody(l, proxy, user),
	}, nil
}

func newGrantBody(l lease.Lease, p *fleet.Proxy, user *url.Userinfo) grantBody {
	proxyURL := url.URL{Scheme: string(p.Scheme), User: user, Host: net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))}
	return grantBody{
		LeaseID:      l.ID,
		Proxy:        leasedProxy{Name: p.Name, Namespace: p.Namespace, Host: p.Host, Port: p.Port, Attributes: p.Attributes},
		ProxyURL:     proxyURL.String(),
		ExpiresAt:    roundDown(l.ExpiresAt),
		TTLSeconds:   int64(l.TTL / time.Second),
		Target:       l.Target,
		FencingToken: l.FencingToken,
	}
}

func (s *Server) decodeAcquire(r *http.Request) (acquireRequest, error) {
	var (
		wanted     selector
		ttlSeconds wholeNumber
		target     string
	)
	if err := decodeBody(r, fields{"selector": &wanted, "ttlSeconds": &ttlSeconds, "target": &target}); err != nil {
		return acquireRequest{}, err
	}
	ttl, err := s.leaseTTL(ttlSeconds)
	if err != nil {
		return acquireRequest{}, err
	}
	if err := checkSelector(codeInvalidRequest, wanted); err != nil {
		return acquireRequest{}, err
	}
	normalized, err := normalizeTarget(target)
	return acquireRequest{selector: wanted, ttl: ttl, target: normalized}, err
}

// leaseTTL refuses a TTL above the maximum instead of cutting it: who asks for
// a week should learn that it will not last.
func (s *Server) leaseTTL(seconds wholeNumber) (time.Duration, error) {
	most := int64(s.maxTTL / time.Second)
	switch {
	case !seconds.given():
		return min(defaultLeaseTTL, time.Duration(most)*time.Second), nil
	case seconds.value < 1:
		return 0, failf(codeInvalidTTL, "ttlSeconds is %s; want 1 to %d", clip(seconds.text), most)
	case seconds.value > most:
		return 0, failf(codeInvalidTTL, "ttlSeconds is %s; the maximum is %d", clip(seconds.text), most)
	}
	return time.Duration(seconds.value) * time.Second, nil
}

// grant has the store choose, and then reads the chosen proxy's credentials.
// Where that fails the lease is given back and the next proxy is tried.
func (s *Server) grant(ctx context.Context, req acquireRequest) (lease.Lease, *fleet.Proxy, *url.Userinfo, error) {
	var failed credentialFailures
	ask := lease.Request{Selector: req.selector, Target: req.target, TTL: req.ttl}
	for {
		snap, err := s.offers.sync()
		if err != nil {
			return lease.Lease{}, nil, nil, err
		}
		l, err := s.store.Acquire(ctx, ask)
		var none *lease.NoMatchError
		switch {
		case errors.As(err, &none) && len(failed) > 0:
			return lease.Lease{}, nil, nil, failed.err()
		case errors.As(err, &none):
			return lease.Lease{}, nil, nil, match(snap, req.selector).refuse(none.Stats, req, s.clock.Now())
		case err != nil:
			return lease.Lease{}, nil, nil, storeError(err)
		}
		proxy := s.findLeased(l)
		if proxy == nil {
			s.giveBack(ctx, l)
			continue // the next turn tells the store
		}
		user, err := s.userinfo(ctx, proxy)
		if err == nil {
			return l, proxy, user, nil
		}
		s.log.Warn("lease not granted: the proxy's credentials cannot be read",
			"namespace", proxy.Namespace, "proxy", proxy.Name, "secret", proxy.CredentialsSecret, "err", err)
		s.giveBack(ctx, l)
		failed = append(failed, credentialFailure{proxy: proxy, err: err})
		if ctx.Err() != nil || len(failed) == maxCredentialFailures {
			return lease.Lease{}, nil, nil, failed.err()
		}
		ask.Exclude = append(ask.Exclude, sharing(snap, proxy)...)
	}
}

// findLeased returns the proxy that a new lease is on, nil when it has changed
// so much since the store was told of it that the lease leads nowhere.
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

// giveBack ends a lease that never reached its holder.
func (s *Server) giveBack(ctx context.Context, l lease.Lease) {
	if err := s.store.Release(context.WithoutCancel(ctx), l.ID); err != nil {
		s.log.Error("cannot give back a lease, it runs until it expires", "lease", l.ID, "err", err)
	}
}

// storeError marks an error that LeaseStore does not name as what it means, so
// that it is answered with 503 and not with 500.
func storeError(err error) error {
	if errors.Is(err, lease.ErrUnknown) {
		return err
	}
	return &apiError{code: codeStoreUnavailable, detail: "the lease store cannot answer now and nothing was changed; try again", cause: err}
}
