package api

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
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

// named finds the Proxy of the path. Cooldowns of a deleted one expire by
// themselves.
func (s *Server) named(r *http.Request) (*fleet.Proxy, error) {
	name := chi.URLParam(r, namespaceParameter) + "/" + chi.URLParam(r, nameParameter)
	snap, err := s.cfg.Fleet.Snapshot()
	if err != nil {
		return nil, err
	}
	p := snap.Find(name)
	if p == nil {
		return nil, failf(codeUnknownProxy, "there is no Proxy %s; GET /v1/proxies lists the proxies", clip(name))
	}
	return p, nil
}

// cooldowns lists the cooldowns of a proxy.
func (s *Server) cooldowns(r *http.Request) (httpapi.Response, error) {
	if _, err := parseParameters(r.URL.RawQuery, nil, nil); err != nil {
		return httpapi.Response{}, err
	}
	p, err := s.named(r)
	if err != nil {
		return httpapi.Response{}, err
	}
	all, err := s.cfg.Store.Cooldowns(r.Context(), p.ProxyUID)
	if err != nil {
		return httpapi.Response{}, s.storeError(err)
	}
	body := cooldownListBody{Cooldowns: make([]listedCooldown, 0, len(all)), Count: len(all)}
	for _, c := range all {
		body.Cooldowns = append(body.Cooldowns, listedCooldown{Target: c.Target, Until: roundDown(c.Until)})
	}
	return httpapi.Response{Status: http.StatusOK, Body: body}, nil
}

// endCooldowns ends cooldowns of a proxy before they expire.
func (s *Server) endCooldowns(r *http.Request) (httpapi.Response, error) {
	values, err := parseParameters(r.URL.RawQuery, []string{"target"}, nil)
	if err != nil {
		return httpapi.Response{}, err
	}
	raw, given := values["target"]
	if given && raw == "" {
		return httpapi.Response{}, failf(codeInvalidQuery, "target is empty; name a target, or leave it out to end all cooldowns of the proxy")
	}
	target, err := targetParameter(raw)
	if err != nil {
		return httpapi.Response{}, err
	}
	p, err := s.named(r)
	if err != nil {
		return httpapi.Response{}, err
	}
	ended, err := s.cfg.Store.EndCooldowns(r.Context(), p.ProxyUID, target)
	if err != nil {
		return httpapi.Response{}, s.storeError(err)
	}
	s.cfg.Log.Info("cooldowns ended by an operator", "namespace", p.Namespace, "proxy", p.Name, "target", target, "ended", ended, "token", holderName(r))
	return httpapi.Response{Status: http.StatusOK, Body: endedBody{Ended: ended}}, nil
}
