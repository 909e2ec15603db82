// Package bearer checks bearer tokens (RFC 6750).
package bearer

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// Token is the digest of a token: comparisons take the same time for all lengths, and
// tokens are not kept in memory.
type Token [sha256.Size]byte

// New returns the token with that text.
func New(text string) Token { return sha256.Sum256([]byte(text)) }

// Accepts reports whether an Authorization header carries one of the tokens.
func Accepts(header string, tokens ...Token) bool { return Find(header, tokens) >= 0 }

// Find returns the index of the token that an Authorization header carries, -1 when it is
// none of them. It compares all tokens in constant time, and ignores the scheme's case and
// blanks around the token.
func Find(header string, tokens []Token) int {
	scheme, text, _ := strings.Cut(header, " ")
	given := New(strings.TrimSpace(text))
	found := -1
	for i := range tokens {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(given[:], tokens[i][:]), i, found)
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return -1
	}
	return found
}
