package prober

import (
	"container/heap"
	"time"
)

// schedule holds the targets that wait for their next probe, the earliest
// first. Every operation costs O(log n), whatever the size of the fleet.
type schedule struct {
	heap dueHeap
}

// push adds a target by its due time, or moves it there.
func (s *schedule) push(t *target) {
	if t.index >= 0 {
		heap.Fix(&s.heap, t.index)
		return
	}
	heap.Push(&s.heap, t)
}

// popDue takes out the target that has been due for longest, nil when none is.
func (s *schedule) popDue(now time.Time) *target {
	if len(s.heap) == 0 || s.heap[0].due.After(now) {
		return nil
	}
	return heap.Pop(&s.heap).(*target)
}

// remove takes t out if it is in.
func (s *schedule) remove(t *target) {
	if t.index >= 0 {
		heap.Remove(&s.heap, t.index)
	}
}

// before reports whether the earliest target is due earlier than other's. What is
// empty is never before.
func (s *schedule) before(other *schedule) bool {
	switch {
	case len(s.heap) == 0:
		return false
	case len(other.heap) == 0:
		return true
	}
	return s.heap[0].due.Before(other.heap[0].due)
}

// wait is how long nothing is due, at most the given time.
func (s *schedule) wait(now time.Time, most time.Duration) time.Duration {
	if len(s.heap) == 0 {
		return most
	}
	return min(most, max(0, s.heap[0].due.Sub(now)))
}

// dueHeap implements heap.Interface. Targets know their index; -1 is outside.
type dueHeap []*target

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap.
func (h *dueHeap) Push(x any) {
	t := x.(*target)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop is for container/heap.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}
