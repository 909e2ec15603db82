package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	var b backoff
	for _, want := range []int{1, 2, 4, 8, 16, 30, 30} {
		assert.Equal(t, time.Duration(want)*time.Second, b.next(steadyAfter-1))
	}
	assert.Equal(t, time.Second, b.next(steadyAfter), "it ran long enough to be trusted again")
	assert.Equal(t, 2*time.Second, b.next(0))
}
