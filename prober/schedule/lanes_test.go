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
