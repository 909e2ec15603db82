package bearer

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
