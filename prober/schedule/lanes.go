package schedule

import (
	"container/heap"
	"time"
)

// SlowAfter is the duration of a probe from which on its proxy counts as slow.
const SlowAfter = time.Second

// Lanes assign free workers: the item that has been due longest comes first. Items
// whose last probe was slow wait in a lane of their own, which never gets all
// workers. Otherwise proxies that accept connections and then hang would hold every
// worker for their timeouts, and failures of other proxies would be seen late.
type Lanes[T any] struct {
	workers        int
	busy, busySlow int // workers that probe, and those that probe slow items
	quick, slow    queue[T]
}

// NewLanes returns empty lanes for a number of workers.
func NewLanes[T any](workers int) *Lanes[T] { return &Lanes[T]{workers: workers} }

// slowMost is how many workers may probe slow items at once: all but a quarter, as
// quick probes need few.
func (l *Lanes[T]) slowMost() int {
	if l.workers == 1 {
		return 1
	}
	return l.workers - max(1, l.workers/4)
}

func (l *Lanes[T]) of(i *Item[T]) *queue[T] {
	if i.Slow {
		return &l.slow
	}
	return &l.quick
}

// Push adds an item by its due time, or moves it there.
func (l *Lanes[T]) Push(i *Item[T]) { l.of(i).push(i) }

// Remove removes an item if it is queued. Call it before Slow changes.
func (l *Lanes[T]) Remove(i *Item[T]) { l.of(i).remove(i) }

// Waiting returns the number of queued items.
func (l *Lanes[T]) Waiting() int { return len(l.quick) + len(l.slow) }

// Busy returns the number of busy workers, and of those with a slow item.
func (l *Lanes[T]) Busy() (all, slow int) { return l.busy, l.busySlow }

// Next removes an item that is due and gives it a worker. It returns nil when none
// is due or none may have a worker.
func (l *Lanes[T]) Next(now time.Time) *Item[T] {
	if l.busy == l.workers {
		return nil
	}
	lane := &l.quick
	if l.busySlow < l.slowMost() && l.slow.before(&l.quick) {
		lane = &l.slow
	}
	i := lane.popDue(now)
	if i == nil {
		return nil
	}
	l.busy++
	if i.Slow {
		l.busySlow++
	}
	return i
}

// Wait is the time until Next returns an item, unless a worker gets free before; at
// most the given time.
func (l *Lanes[T]) Wait(now time.Time, most time.Duration) time.Duration {
	if l.busy == l.workers {
		return most
	}
	if l.busySlow < l.slowMost() {
		most = l.slow.wait(now, most)
	}
	return l.quick.wait(now, most)
}

// Done frees the worker of an item that was slow, or was not, when it got the worker.
func (l *Lanes[T]) Done(slow bool) {
	l.busy--
	if slow {
		l.busySlow--
	}
}

// queue holds the items that wait for their next probe, the earliest first. Every
// operation costs O(log n).
// It implements heap.Interface. Items know their position.
type queue[T any] []*Item[T]

// push adds an item by its due time, or moves it there.
func (q *queue[T]) push(i *Item[T]) {
	if i.Queued() {
		heap.Fix(q, i.pos-1)
		return
	}
	heap.Push(q, i)
}

// popDue removes the item that has been due longest, nil when none is due.
func (q *queue[T]) popDue(now time.Time) *Item[T] {
	if len(*q) == 0 || (*q)[0].Due.After(now) {
		return nil
	}
	return heap.Pop(q).(*Item[T])
}

// remove removes an item if it is queued.
func (q *queue[T]) remove(i *Item[T]) {
	if i.Queued() {
		heap.Remove(q, i.pos-1)
	}
}

// before reports whether the earliest item is due earlier than other's. An empty
// queue is never before another.
func (q *queue[T]) before(other *queue[T]) bool {
	switch {
	case len(*q) == 0:
		return false
	case len(*other) == 0:
		return true
	}
	return (*q)[0].Due.Before((*other)[0].Due)
}

// wait is the time until an item is due, at most the given time.
func (q *queue[T]) wait(now time.Time, most time.Duration) time.Duration {
	if len(*q) == 0 {
		return most
	}
	return min(most, max(0, (*q)[0].Due.Sub(now)))
}

func (q queue[T]) Len() int           { return len(q) }
func (q queue[T]) Less(i, j int) bool { return q[i].Due.Before(q[j].Due) }

func (q queue[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].pos, q[j].pos = i+1, j+1
}

// Push is for container/heap.
func (q *queue[T]) Push(x any) {
	i := x.(*Item[T])
	*q = append(*q, i)
	i.pos = len(*q)
}

// Pop is for container/heap.
func (q *queue[T]) Pop() any {
	last := len(*q) - 1
	i := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	i.pos = 0
	return i
}
