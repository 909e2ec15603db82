package bearer

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// FuzzFind: who is let in has sent the whole token, and under the scheme's name.
func FuzzFind(f *testing.F) {
	const token = "0123456789abcdef"
	for _, seed := range []string{"Bearer " + token, "bEaReR  " + token + "\t", token, "Bearer " + token + " x", "Bearer\u00a0" + token, "Bearer ", "", "Bearer " + token + "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		found := Find(header, []Token{New("another token, " + token), New(token)})
		require.Contains(t, []int{-1, 1}, found)
		require.Equal(t, found >= 0, Accepts(header, New(token)))
		rest, ok := strings.CutSuffix(strings.TrimRightFunc(header, unicode.IsSpace), token)
		require.Equal(t, found >= 0, ok && strings.EqualFold(strings.TrimRightFunc(rest, unicode.IsSpace), "bearer") && strings.HasPrefix(rest[len("bearer"):], " "))
	})
}
