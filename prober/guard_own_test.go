package prober

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// but is what a fleet does of which one proxy fails.
func but(name string, reason probe.Reason) func(string) probe.Result {
	return func(other string) probe.Result {
		if other == name {
			return fails(reason)
		}
		return works()
	}
}

// outage lets the target be down for some rounds, and come back.
func (c *control) outage(rounds int) {
	c.up = false
	for range rounds {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	c.up = true
	c.step(suspectEvery)
	c.checks()
}

// What failed before the target did is not the target's doing.
func TestAnOutageOfTheTargetAcquitsNoDeadProxy(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.all(works())
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.outage(5)
	assert.Zero(t, c.down(causeDirect))
	assert.Equal(t, 20, c.count(healthy))
	c.each(but("p7", probe.ReasonConnectTimeout))
	assert.Equal(t, 1, c.count(unhealthy), "its third")
	assert.Equal(t, 19, c.count(healthy))
}

// A target that is away now and then hides no dead proxy, and condemns none that
// works.
func TestATargetThatComesAndGoesHidesNoDeadProxy(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	for range 3 {
		c.each(but("p7", probe.ReasonTLSHandshakeFailed))
		c.outage(1)
	}
	assert.Equal(t, 1, c.count(unhealthy))
	for range 10 {
		c.each(but("p7", probe.ReasonTLSHandshakeFailed))
		c.outage(1)
	}
	assert.Equal(t, 1, c.count(unhealthy))
	assert.Equal(t, 19, c.count(healthy))
}

// One success is the end of a run, whatever was known of the failures.
func TestAProxyThatWorksAgainStartsAfresh(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.all(works())
	c.outage(2)
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.each(but("p7", probe.ReasonConnectTimeout))
	assert.Equal(t, 20, c.count(healthy))
}

// While the fleet fails as a whole, a target that works when it is asked directly
// proves nothing: what is between the prober and the proxies may be broken. What
// was proven before stays so.
func TestAFleetThatFailsAtOnceProvesNothing(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.fleet(20)
	c.each(but("p7", probe.ReasonConnectTimeout))
	for range 5 {
		c.all(fails(probe.ReasonConnectTimeout))
	}
	assert.Equal(t, 1.0, c.down(causeFleet))
	assert.Equal(t, 20, c.count(healthy))
	both := func(name string) probe.Result {
		if name == "p8" {
			name = "p7"
		}
		return but("p7", probe.ReasonConnectTimeout)(name)
	}
	c.each(both)
	c.each(both)
	assert.Zero(t, c.down(causeFleet), "it is over")
	assert.Equal(t, 20, c.count(healthy))
	c.each(both)
	assert.Equal(t, unhealthy, c.verdict(fleet[7]))
	assert.Equal(t, healthy, c.verdict(fleet[8]), "it failed in the outage, and twice since")
}
