package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func capacity(t *testing.T, s *subject) {
	a, b := proxy(1, 2), proxy(2, 1)
	for range 3 {
		s.acquire("", a, b)
	}
	stats := s.refused("", a, b)
	assert.Equal(t, 2, stats.AtCapacity)
	assert.Equal(t, 2, s.active(a.Instance))
	assert.Equal(t, 1, s.active(b.Instance))
	assert.True(t, s.clock.Now().Add(time.Minute).Equal(stats.FreeAt()))
}

func zeroCapacity(t *testing.T, s *subject) {
	off := proxy(1, 0)
	stats := s.refused("", off)
	assert.Equal(t, 1, stats.AtCapacity)
	assert.True(t, stats.FreeAt().IsZero(), "waiting does not help")
	l := s.acquire("", off, proxy(2, 1))
	assert.Equal(t, "crawl/proxy-002", l.Proxy)

	negative := proxy(3, -1)
	s.refused("", negative)
}

func loweredCapacity(t *testing.T, s *subject) {
	c := proxy(1, 3)
	var ends []time.Time
	for range 3 {
		ends = append(ends, s.acquire("", c).ExpiresAt)
		s.clock.Step(10 * time.Second)
	}
	lowered := proxy(1, 2)
	stats := s.refused("", lowered)
	assert.True(t, ends[1].Equal(stats.FreeAt()), "two of three must expire before one more fits: %s", stats.FreeAt())
	s.clock.SetTime(ends[0])
	s.refused("", lowered)
	s.clock.SetTime(ends[1])
	s.acquire("", lowered)
}

func noCandidates(t *testing.T, s *subject) {
	stats := s.refused("example.com")
	assert.Zero(t, stats)
	assert.True(t, stats.FreeAt().IsZero())
}
