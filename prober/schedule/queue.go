package schedule

import (
	"container/heap"
	"time"
)

// queue holds the items that wait for their next probe, the earliest first. Every
// operation costs O(log n).
type queue[T any] struct {
	heap dueHeap[T]
}

// push adds an item by its due time, or moves it there.
func (q *queue[T]) push(i *Item[T]) {
	if i.Queued() {
		heap.Fix(&q.heap, i.pos-1)
		return
	}
	heap.Push(&q.heap, i)
}

// popDue removes the item that has been due longest, nil when none is due.
func (q *queue[T]) popDue(now time.Time) *Item[T] {
	if len(q.heap) == 0 || q.heap[0].Due.After(now) {
		return nil
	}
	return heap.Pop(&q.heap).(*Item[T])
}

// remove removes an item if it is queued.
func (q *queue[T]) remove(i *Item[T]) {
	if i.Queued() {
		heap.Remove(&q.heap, i.pos-1)
	}
}

// before reports whether the earliest item is due earlier than other's. An empty
// queue is never before another.
func (q *queue[T]) before(other *queue[T]) bool {
	switch {
	case len(q.heap) == 0:
		return false
	case len(other.heap) == 0:
		return true
	}
	return q.heap[0].Due.Before(other.heap[0].Due)
}

// wait is the time until an item is due, at most the given time.
func (q *queue[T]) wait(now time.Time, most time.Duration) time.Duration {
	if len(q.heap) == 0 {
		return most
	}
	return min(most, max(0, q.heap[0].Due.Sub(now)))
}

// dueHeap implements heap.Interface. Items know their position.
type dueHeap[T any] []*Item[T]

func (h dueHeap[T]) Len() int           { return len(h) }
func (h dueHeap[T]) Less(i, j int) bool { return h[i].Due.Before(h[j].Due) }

func (h dueHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}

// Push is for container/heap.
func (h *dueHeap[T]) Push(x any) {
	i := x.(*Item[T])
	*h = append(*h, i)
	i.pos = len(*h)
}

// Pop is for container/heap.
func (h *dueHeap[T]) Pop() any {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	i.pos = 0
	return i
}
