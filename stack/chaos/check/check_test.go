package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestNothingIsWrong: the scene that all tests plant something in is clean, and tries
// every promise.
func TestNothingIsWrong(t *testing.T) {
	v := newScene().check(t)
	assert.Empty(t, v.Violations)
	assert.Empty(t, v.Excused)
	assert.Empty(t, v.Unchecked())
	for _, p := range Promises() {
		assert.Contains(t, v.Table(), string(p))
	}
}

// plant is something that tests put into the scene, and what the judge is to say.
type plant struct {
	plant func(x *scene)
	// says is a part of the one violation; "" means that it is fine.
	says string
	// more promises that are broken by the same.
	more []Promise
	// excused: it is found, and excused.
	excused bool
}

// hold plants one after another, each in a scene of its own.
func hold(t *testing.T, p Promise, plants map[string]plant) {
	t.Helper()
	fine, bad := 0, 0
	for name, tt := range plants {
		t.Run(name, func(t *testing.T) {
			x := newScene()
			tt.plant(x)
			v := x.check(t)
			found := v.Violations
			if tt.excused {
				assert.Empty(t, v.Violations)
				found = v.Excused
			} else {
				assert.Empty(t, v.Excused)
			}
			if tt.says == "" {
				assert.Empty(t, found)
				return
			}
			said := false
			for _, f := range found {
				assert.Contains(t, append([]Promise{p}, tt.more...), f.Promise, "%s", f)
				assert.NotEmpty(t, f.Lines, "%s", f)
				assert.NotEmpty(t, f.Subjects, "%s", f)
				said = said || f.Promise == p && strings.Contains(f.String(), tt.says)
			}
			assert.True(t, said, "want %q in:\n%s", tt.says, fmt.Sprintln(found))
		})
		if tt.says == "" {
			fine++
		} else {
			bad++
		}
	}
	assert.Positive(t, fine, "a promise is tested with what is fine, too")
	assert.Positive(t, bad, "a promise is tested with what is not")
}
