package testwait

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEventuallyPollsUntilTheConditionHolds(t *testing.T) {
	polls := 0
	Eventually(t, "the third poll", func() bool { polls++; return polls == 3 })
	assert.Equal(t, 3, polls)
}
