package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCleanScene: the scene that all tests change breaks no promise, and checks each.
func TestCleanScene(t *testing.T) {
	v := newScene().check(t)
	assert.Empty(t, v.Violations)
	assert.Empty(t, v.Excused)
	assert.Empty(t, v.Unchecked())
	for _, p := range Promises() {
		assert.Contains(t, v.Table(), string(p))
	}
}

// mutation is a change of the scene, and what the checker must report.
type mutation struct {
	apply   func(x *scene)
	text    string    // part of the violation, "" for none
	more    []Promise // further broken promises
	excused bool
}

// hold applies each change to a scene of its own.
func hold(t *testing.T, p Promise, changes map[string]mutation) {
	t.Helper()
	fine, bad := 0, 0
	for name, tt := range changes {
		t.Run(name, func(t *testing.T) {
			x := newScene()
			tt.apply(x)
			v := x.check(t)
			found := v.Violations
			if tt.excused {
				assert.Empty(t, v.Violations)
				found = v.Excused
			} else {
				assert.Empty(t, v.Excused)
			}
			if tt.text == "" {
				assert.Empty(t, found)
				return
			}
			reported := false
			for _, f := range found {
				assert.Contains(t, append([]Promise{p}, tt.more...), f.Promise, "%s", f)
				assert.NotEmpty(t, f.Lines, "%s", f)
				assert.NotEmpty(t, f.Subjects, "%s", f)
				reported = reported || f.Promise == p && strings.Contains(f.String(), tt.text)
			}
			assert.True(t, reported, "want %q in:\n%s", tt.text, fmt.Sprintln(found))
		})
		if tt.text == "" {
			fine++
		} else {
			bad++
		}
	}
	assert.Positive(t, fine, "each promise needs a case that keeps it")
	assert.Positive(t, bad, "each promise needs a case that breaks it")
}
