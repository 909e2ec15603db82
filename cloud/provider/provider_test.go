package provider

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

func TestErrorUnwrapsToClassAndCause(t *testing.T) {
	for _, class := range classes {
		cause := &causeError{}
		err := fmt.Errorf("outer: %w", &Error{Class: class, Op: "insert", Target: "zones/a/instances/b", Err: cause})
		assert.ErrorIs(t, err, class)
		var found *causeError
		assert.ErrorAs(t, err, &found)
		assert.Same(t, cause, found)
		assert.Equal(t, class, Class(err))
		assert.Equal(t, "outer: insert zones/a/instances/b: cause", err.Error())
	}
}

type causeError struct{}

func (*causeError) Error() string { return "cause" }

func TestClassOfNilAndOfAnUnclassifiedError(t *testing.T) {
	assert.NoError(t, Class(nil))
	assert.Equal(t, ErrTransient, Class(io.ErrUnexpectedEOF))
}

func TestResultIsALabel(t *testing.T) {
	assert.Equal(t, "ok", Result(nil))
	assert.Equal(t, "quota_exceeded", Result(&Error{Class: ErrQuotaExceeded, Err: io.EOF}))
	assert.Equal(t, "transient_failure", Result(io.EOF))
	for _, class := range classes {
		assert.Regexp(t, `^[a-z_]+$`, Result(class))
	}
}

func TestMayHaveTakenEffect(t *testing.T) {
	assert.False(t, MayHaveTakenEffect(nil))
	assert.True(t, MayHaveTakenEffect(io.EOF), "an unclassified error may have come from anywhere")
	assert.True(t, MayHaveTakenEffect(&Error{Class: ErrTransient, Unsure: true, Err: io.EOF}))
	assert.False(t, MayHaveTakenEffect(&Error{Class: ErrPermanent, Err: io.EOF}))
	assert.False(t, MayHaveTakenEffect(errors.Join(ErrNotWriter, io.EOF)), "never sent")
}

func TestFailureClass(t *testing.T) {
	want := map[error]adapter.FailureClass{
		ErrQuotaExceeded: adapter.FailureQuotaExceeded,
		ErrStockout:      adapter.FailureStockout,
		ErrPermanent:     adapter.FailurePermanent,
		ErrRefused:       adapter.FailureRefused,
		ErrAlreadyExists: adapter.FailureRefused,
	}
	for _, class := range classes {
		expected := adapter.FailureTransient
		if w, ok := want[class]; ok {
			expected = w
		}
		assert.Equal(t, expected, FailureClass(class), class.Error())
	}
}
