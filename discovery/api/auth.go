package api

import (
	"net/http"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
)

// authenticate refuses requests that bear no known token, and those that come
// faster than the token may send them.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.tokens == nil || s.isOpen(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		header := r.Header.Get("Authorization")
		holder := s.tokens.Identify(header)
		if holder == nil {
			s.fail(w, r, unauthorized(header))
			return
		}
		callOf(r.Context()).holder = holder
		ok, wait := holder.Allow(s.clock.Now())
		s.metrics.tokenRequest(holder.Name, ok)
		if !ok {
			err := failf(codeTooManyRequests, "the token %s sends more requests than it may; wait as told, and ask less often", holder.Name)
			err.retryAfter = wait
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOpen reports whether the path is that of a route that needs no token.
func (s *Server) isOpen(path string) bool {
	for _, rt := range s.table {
		if rt.needs == "" && rt.pattern == path {
			return true
		}
	}
	return false
}

func unauthorized(header string) *apiError {
	err := failf(codeUnauthorized, "the bearer token is not one that is known here")
	if header == "" {
		err = failf(codeUnauthorized, "send the header Authorization: Bearer TOKEN")
	}
	err.header = http.Header{"Www-Authenticate": {`Bearer realm="discovery"`}}
	return err
}

// guarded refuses what the token has no scope for.
func (s *Server) guarded(rt route) handler {
	return func(r *http.Request) (response, error) {
		if h := callOf(r.Context()).holder; h != nil && !h.Scope.Includes(rt.needs) {
			return response{}, failf(codeForbidden, "%s %s needs the scope %s, and the token %s has no more than %s", rt.method, rt.pattern, rt.needs, h.Name, h.Scope)
		}
		return rt.handle(r)
	}
}

// holderName is the name of the token that a request bears, "" when everybody
// is let in.
func holderName(r *http.Request) string {
	if h := callOf(r.Context()).holder; h != nil {
		return h.Name
	}
	return ""
}

var _ Tokens = (*access.Tokens)(nil)
