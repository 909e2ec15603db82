package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const interval = 30 * time.Second

func half(d time.Duration) time.Duration { return d / 2 }

func TestFirstIntervalIsShortenedAtRandom(t *testing.T) {
	var i item
	i.Reset(epoch())
	i.Start(epoch(), interval, half)
	assert.Equal(t, epoch().Add(22500*time.Millisecond), i.Due)
	i.Start(i.Due, interval, half)
	assert.Equal(t, epoch().Add(52500*time.Millisecond), i.Due, "then the interval")
}

func TestLateStartKeepsThePhase(t *testing.T) {
	i := item{Due: epoch()}
	i.Start(epoch().Add(5*time.Second), interval, half)
	assert.Equal(t, epoch().Add(interval), i.Due)
	i = item{Due: epoch()}
	i.Start(epoch().Add(25*time.Second), interval, half)
	assert.Equal(t, epoch().Add(40*time.Second), i.Due, "at least half an interval later")
}

func TestRetryEarlyBacksOffUpToTheInterval(t *testing.T) {
	var i item
	for _, want := range []int{1, 2, 4, 8, 16} {
		i.Postpone(epoch().Add(interval))
		i.RetryEarly(epoch(), interval)
		assert.Equal(t, epoch().Add(time.Duration(want)*time.Second), i.Due)
	}
	i.Postpone(epoch().Add(interval))
	i.RetryEarly(epoch(), interval)
	assert.Equal(t, epoch().Add(interval), i.Due)
}

func TestRephaseKeepsThePhaseWithinOneInterval(t *testing.T) {
	for _, missed := range []time.Duration{-100 * time.Hour, -interval, 0, interval, 100 * time.Hour} {
		i := item{Due: epoch().Add(missed + 7*time.Second)}
		i.Rephase(epoch(), interval)
		assert.Equal(t, epoch().Add(7*time.Second), i.Due, missed)
	}
}

func TestWithinBringsTheNextProbeForward(t *testing.T) {
	i := item{Due: epoch().Add(10 * time.Minute)}
	i.Within(epoch(), interval)
	assert.Equal(t, epoch().Add(interval), i.Due)
	i.Within(epoch(), time.Hour)
	assert.Equal(t, epoch().Add(interval), i.Due, "never back")
}
