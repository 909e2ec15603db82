package discovery

import (
	"net/http"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/bearer"
)

// authenticate refuses requests that do not bear the token.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Get("Authorization")
		if s.auth == nil || r.URL.Path == healthPath || bearer.Accepts(header, *s.auth) {
			next.ServeHTTP(w, r)
			return
		}
		err := failf(codeUnauthorized, "the bearer token is not the right one")
		if header == "" {
			err = failf(codeUnauthorized, "send the header Authorization: Bearer TOKEN")
		}
		err.header = http.Header{"Www-Authenticate": {`Bearer realm="discovery"`}}
		s.fail(w, r, err)
	})
}
