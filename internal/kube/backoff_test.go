package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestWatchBackoffAfterOutages: however many outages there were, it takes a few
// seconds after the last one to follow again.
func TestWatchBackoffAfterOutages(t *testing.T) {
	begin := time.Unix(0, 0)
	c := clocktesting.NewFakeClock(begin)
	next := WatchBackoff().DelayWithReset(c, 2*time.Minute)
	for outage := range 8 { // of 10 s each, in each half minute
		over := begin.Add(time.Duration(outage)*30*time.Second + 10*time.Second)
		tries := 0
		for c.Now().Before(over) {
			c.Step(next())
			tries++
		}
		blind := c.Now().Sub(over)
		assert.LessOrEqual(t, blind, mostBlind*3/2, "outage %d", outage)
		assert.Less(t, tries, 20, "and the API server is not overrun")
		c.SetTime(begin.Add(time.Duration(outage+1) * 30 * time.Second))
	}
}
