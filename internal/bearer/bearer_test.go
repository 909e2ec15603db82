package bearer

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAccepts(t *testing.T) {
	const old, next = "0123456789abcdef-old", "0123456789abcdef-new"
	tokens := []Token{New(old), New(next)}
	for header, want := range map[string]bool{
		"Bearer " + old:             true,
		"Bearer " + next:            true,
		"bearer " + old:             true,
		"BEARER  " + old + " ":      true,
		"":                          false,
		"Bearer":                    false,
		"Bearer ":                   false,
		old:                         false,
		"Basic " + old:              false,
		"Bearer " + old[1:]:         false,
		"Bearer " + old + "x":       false,
		"Bearer " + old + next:      false,
		"Bearer " + old + " " + old: false,
		"Bearer\t" + old:            false,
	} {
		assert.Equal(t, want, Accepts(header, tokens...), "%q", header)
	}
	assert.Equal(t, 0, Find("Bearer "+old, tokens))
	assert.Equal(t, 1, Find("Bearer "+next, tokens))
	assert.Equal(t, -1, Find("Basic "+next, tokens))
	assert.False(t, Accepts("Bearer "+old), "no token, nobody")
	assert.False(t, Accepts("Bearer ", New("x")))
	assert.False(t, Accepts("Bearer "+next, New(old)))
}

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
