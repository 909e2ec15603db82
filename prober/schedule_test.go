package prober

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func waiting(seconds int) *target {
	return &target{index: -1, due: epoch().Add(time.Duration(seconds) * time.Second)}
}

func TestScheduleTakesTheEarliestFirst(t *testing.T) {
	var s schedule
	late, early, middle := waiting(3), waiting(1), waiting(2)
	for _, w := range []*target{late, early, middle} {
		s.push(w)
	}
	now := epoch()
	assert.Nil(t, s.popDue(now))
	assert.Equal(t, time.Second, s.wait(now, time.Hour))
	assert.Equal(t, time.Millisecond, s.wait(now, time.Millisecond))
	now = now.Add(2 * time.Second)
	assert.Zero(t, s.wait(now, time.Hour))
	assert.Same(t, early, s.popDue(now))
	assert.Same(t, middle, s.popDue(now))
	assert.Nil(t, s.popDue(now))
	assert.Equal(t, -1, middle.index)
	s.remove(late)
	assert.Equal(t, time.Hour, s.wait(now, time.Hour), "empty")
	s.remove(late) // twice is fine
}

func TestScheduleMovesWhatIsPushedAgain(t *testing.T) {
	var s schedule
	a, b := waiting(1), waiting(2)
	s.push(a)
	s.push(b)
	a.due = a.due.Add(time.Hour)
	s.push(a)
	assert.Len(t, s.heap, 2)
	now := epoch().Add(2 * time.Second)
	assert.Same(t, b, s.popDue(now))
	assert.Nil(t, s.popDue(now))
}

func TestScheduleAgainstAPlainSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	var s schedule
	in := map[*target]bool{}
	for range 5_000 {
		now := epoch().Add(time.Duration(random.IntN(1000)) * time.Second)
		switch random.IntN(4) {
		case 0, 1:
			w := waiting(random.IntN(1000))
			s.push(w)
			in[w] = true
		case 2:
			for w := range in { // any
				s.remove(w)
				delete(in, w)
				break
			}
		case 3:
			got := s.popDue(now)
			for w := range in {
				require.False(t, got == nil && !w.due.After(now), "something was due")
				require.False(t, got != nil && w.due.Before(got.due), "something was due earlier")
			}
			delete(in, got)
		}
		require.Len(t, s.heap, len(in))
	}
}

func BenchmarkSchedule10000(b *testing.B) {
	var s schedule
	for i := range 10_000 {
		s.push(waiting(i % 30))
	}
	now := epoch()
	b.ReportAllocs()
	for b.Loop() {
		w := s.popDue(now)
		for w == nil {
			now = now.Add(time.Second)
			w = s.popDue(now)
		}
		w.due = now.Add(30 * time.Second)
		s.push(w)
	}
}
