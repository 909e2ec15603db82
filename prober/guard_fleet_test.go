package prober

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// The network breaks at the prober, or the provider's does: everything fails, and
// no target is to blame.
func TestAFleetThatFailsAtOnceIsHeldForAWhile(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.fleet(40)
	c.all(works())
	most := func(name string) probe.Result {
		if len(name) == 2 { // p0 to p9
			return works()
		}
		return fails(probe.ReasonDialTimeout)
	}
	for range 8 {
		c.each(most)
	}
	assert.Equal(t, 40, c.count(healthy))
	assert.Equal(t, 1.0, c.down(causeFleet))
	marks := c.writes(fleet)[changeOfMark]
	require.Len(t, marks, mostMarks)
	assert.Contains(t, marks[0].Message, "of 40 healthy proxies fail at once")

	for range 4 { // five minutes are over
		c.each(most)
	}
	assert.Equal(t, 30, c.count(unhealthy), "a fleet that dies is seen to be dead")
	for range 4 {
		c.each(most)
	}
	assert.Zero(t, c.down(causeFleet))
}

func TestAFleetThatComesBackInTimeLosesNothing(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(40)
	c.all(works())
	for range 6 {
		c.all(fails(probe.ReasonDialTimeout))
	}
	c.all(works())
	assert.Equal(t, 40, c.count(healthy))
	c.all(works())
	assert.Zero(t, c.down(causeFleet))
	for range 2 {
		c.all(fails(probe.ReasonDialTimeout))
	}
	assert.Equal(t, 40, c.count(healthy), "what failed meanwhile is forgotten")
}

func TestASmallFleetIsJudgedOneByOne(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(fleetLeast - 1)
	c.all(works())
	for range 3 {
		c.all(fails(probe.ReasonDialTimeout))
	}
	assert.Equal(t, fleetLeast-1, c.count(unhealthy))
}
