package api

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
)

// cooldownListBody is the answer to GET .../cooldowns.
type cooldownListBody struct {
	Cooldowns []listedCooldown `json:"cooldowns"`
	Count     int              `json:"count"`
}

// listedCooldown is for all targets when Target is "".
type listedCooldown struct {
	Target string    `json:"target"`
	Until  time.Time `json:"until"`
}

// endedBody is the answer to DELETE .../cooldowns.
type endedBody struct {
	Ended int `json:"ended"`
}

const (
	namespaceParameter = "namespace"
	nameParameter      = "name"
)

// named finds the Proxy that the path names. Cooldowns of one that was deleted are
// no more than a memory that ends by itself.
func (s *Server) named(r *http.Request) (*fleet.Proxy, error) {
	name := chi.URLParam(r, namespaceParameter) + "/" + chi.URLParam(r, nameParameter)
	snap, err := s.fleet.Snapshot()
	if err != nil {
		return nil, err
	}
	p := snap.Find(name)
	if p == nil {
		return nil, failf(codeUnknownProxy, "there is no Proxy %s; GET /v1/proxies lists what there is", clip(name))
	}
	return p, nil
}

// cooldowns lists what a proxy rests for.
func (s *Server) cooldowns(r *http.Request) (response, error) {
	if _, err := parseParameters(r.URL.RawQuery, nil); err != nil {
		return response{}, err
	}
	p, err := s.named(r)
	if err != nil {
		return response{}, err
	}
	all, err := s.store.Cooldowns(r.Context(), p.ProxyUID)
	if err != nil {
		return response{}, s.storeError(err)
	}
	body := cooldownListBody{Cooldowns: make([]listedCooldown, 0, len(all)), Count: len(all)}
	for _, c := range all {
		body.Cooldowns = append(body.Cooldowns, listedCooldown{Target: c.Target, Until: roundDown(c.Until)})
	}
	return response{status: http.StatusOK, body: body}, nil
}

// endCooldowns has a proxy leased again before it has rested.
func (s *Server) endCooldowns(r *http.Request) (response, error) {
	values, err := parseParameters(r.URL.RawQuery, []string{"target"})
	if err != nil {
		return response{}, err
	}
	raw, given := values["target"]
	if given && raw == "" {
		return response{}, failf(codeInvalidQuery, "target is empty; name a target, or leave it out to end all cooldowns of the proxy")
	}
	target, err := targetParameter(raw)
	if err != nil {
		return response{}, err
	}
	p, err := s.named(r)
	if err != nil {
		return response{}, err
	}
	ended, err := s.store.EndCooldowns(r.Context(), p.ProxyUID, target)
	if err != nil {
		return response{}, s.storeError(err)
	}
	s.log.Info("cooldowns ended by an operator", "namespace", p.Namespace, "proxy", p.Name, "target", target, "ended", ended, "token", holderName(r))
	return response{status: http.StatusOK, body: endedBody{Ended: ended}}, nil
}
