// Package bearer checks bearer tokens (RFC 6750).
package bearer

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// Token is a token by its digest, so that a comparison takes equally long for all
// tokens of all lengths, and none is kept in memory.
type Token [sha256.Size]byte

// New returns the token with that text.
func New(text string) Token { return sha256.Sum256([]byte(text)) }

// Accepts reports whether the value of an Authorization header carries one of the
// tokens. All of them are compared, in constant time, so that it takes the same
// time for all wrong ones. The scheme's case does not matter, nor do blanks around
// the token.
func Accepts(header string, tokens ...Token) bool {
	scheme, text, _ := strings.Cut(header, " ")
	given := New(strings.TrimSpace(text))
	match := 0
	for _, want := range tokens {
		match |= subtle.ConstantTimeCompare(given[:], want[:])
	}
	return match == 1 && strings.EqualFold(scheme, "Bearer")
}
