package schedule

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSlowMost(t *testing.T) {
	for workers, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 8: 6, 100: 75} {
		l := NewLanes[string](workers)
		assert.Equal(t, want, l.slowMost(), "%d workers", workers)
	}
}

// The item that may have a worker and has been due longest gets it, and no worker is
// idle while such an item is due.
func TestLanesAgainstLinearSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	l := NewLanes[string](5)
	in := map[*item]bool{}
	var out []*item
	for range 5_000 {
		now := epoch().Add(time.Duration(random.IntN(1000)) * time.Second)
		switch random.IntN(3) {
		case 0:
			w := waiting(random.IntN(1000))
			w.Slow = random.IntN(2) == 0
			l.Push(w)
			in[w] = true
		case 1:
			if len(out) > 0 {
				l.Done(out[0].Slow)
				out = out[1:]
			}
		case 2:
			free, slowFree := l.busy < 5, l.busySlow < 4
			got := l.Next(now)
			for w := range in {
				may := free && (!w.Slow || slowFree)
				require.False(t, may && got == nil && !w.Due.After(now), "a worker is idle while an item is due")
				require.False(t, may && got != nil && w.Due.Before(got.Due), "another item was due earlier")
			}
			if got != nil {
				require.True(t, in[got])
				delete(in, got)
				out = append(out, got)
			}
		}
		require.Equal(t, len(out), l.busy)
		require.LessOrEqual(t, l.busySlow, 4)
		require.Equal(t, len(in), l.Waiting())
		require.GreaterOrEqual(t, l.Wait(now, time.Hour), time.Duration(0))
	}
}

type item = Item[string]

// epoch is when the clock of the tests starts.
func epoch() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }

func waiting(seconds int) *item {
	return &item{Due: epoch().Add(time.Duration(seconds) * time.Second)}
}

func TestQueueReturnsTheEarliestFirst(t *testing.T) {
	var s queue[string]
	late, early, middle := waiting(3), waiting(1), waiting(2)
	for _, w := range []*item{late, early, middle} {
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
	assert.False(t, middle.Queued())
	s.remove(late)
	assert.Equal(t, time.Hour, s.wait(now, time.Hour), "empty")
	s.remove(late) // twice is fine
}

func TestQueueMovesAnItemThatIsPushedAgain(t *testing.T) {
	var s queue[string]
	a, b := waiting(1), waiting(2)
	s.push(a)
	s.push(b)
	a.Due = a.Due.Add(time.Hour)
	s.push(a)
	assert.Len(t, s, 2)
	now := epoch().Add(2 * time.Second)
	assert.Same(t, b, s.popDue(now))
	assert.Nil(t, s.popDue(now))
}

func TestQueueAgainstLinearSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	var s queue[string]
	in := map[*item]bool{}
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
				require.False(t, got == nil && !w.Due.After(now), "something was due")
				require.False(t, got != nil && w.Due.Before(got.Due), "something was due earlier")
			}
			delete(in, got)
		}
		require.Len(t, s, len(in))
	}
}

func BenchmarkQueue10000(b *testing.B) {
	var s queue[string]
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
		w.Due = now.Add(30 * time.Second)
		s.push(w)
	}
}
