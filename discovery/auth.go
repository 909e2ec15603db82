package discovery

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// bearer knows one token by its digest, so that the comparison takes equally
// long for all tokens of all lengths.
type bearer struct {
	digest [sha256.Size]byte
}

func newBearer(token string) *bearer { return &bearer{digest: sha256.Sum256([]byte(token))} }

// accepts checks the value of an Authorization header.
func (b *bearer) accepts(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	digest := sha256.Sum256([]byte(strings.TrimSpace(token)))
	same := subtle.ConstantTimeCompare(digest[:], b.digest[:]) == 1
	return same && strings.EqualFold(scheme, "Bearer")
}

// authenticate refuses requests that do not bear the token.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Get("Authorization")
		if s.auth == nil || r.URL.Path == healthPath || s.auth.accepts(header) {
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
