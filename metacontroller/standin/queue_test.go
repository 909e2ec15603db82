package standin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// marker is a key that the tests wait for.
const marker = "marker"

// due moves the clock by d and returns the keys that are due then.
// The queue delays in its own goroutine. The first marker shows that the goroutine
// has received all earlier requests, the second that it has processed the due ones.
func (h *harness) due(d time.Duration) []string {
	h.t.Helper()
	keys := h.passMarker()
	h.clock.Step(d)
	keys = append(keys, h.passMarker()...)
	return append(keys, h.passMarker()...)
}

func (h *harness) passMarker() []string {
	h.t.Helper()
	h.queue.AddAfter(marker, time.Nanosecond)
	keys := []string{}
	for {
		require.Eventually(h.t, func() bool {
			h.clock.Step(time.Nanosecond)
			return h.queue.Len() > 0
		}, patience, 100*time.Microsecond)
		key, _ := h.queue.Get()
		h.queue.Done(key)
		if key == marker {
			return keys
		}
		keys = append(keys, key)
	}
}

// slack exceeds the steps of the clock for the markers.
const slack = time.Millisecond

func TestEarliestDelayWins(t *testing.T) {
	h := newHarness(t)
	h.queue.AddAfter("a", 5*time.Second)
	h.queue.AddAfter("a", 60*time.Second)
	require.Empty(t, h.due(5*time.Second-slack))
	require.Equal(t, []string{"a"}, h.due(slack), "the later delay did not postpone the earlier")
	require.Empty(t, h.due(2*time.Minute), "one delay, one sync: the later one is gone")

	h.queue.AddAfter("b", 60*time.Second)
	h.queue.AddAfter("b", 5*time.Second)
	require.Equal(t, []string{"b"}, h.due(5*time.Second), "a shorter delay overtakes")
}

func TestReconcileByEventKeepsThePendingDelay(t *testing.T) {
	h := newHarness(t)
	h.queue.AddAfter("a", 5*time.Second)
	h.queue.Add("a")
	require.Equal(t, []string{"a"}, h.drain())
	require.Empty(t, h.due(5*time.Second-slack))
	require.Equal(t, []string{"a"}, h.due(slack))
}

const parentKey = "crawl/fra-1"

func TestBackOffDoubles(t *testing.T) {
	h := newHarness(t)
	delay := 5 * time.Millisecond
	for i := range 18 {
		require.Equal(t, i, h.queue.NumRequeues(parentKey))
		h.requeue(h.ctx, parentKey, errors.New("hook is down"))
		want := min(delay, 1000*time.Second)
		require.Empty(t, h.due(want-slack), "failure %d", i)
		require.Equal(t, []string{parentKey}, h.due(slack), "failure %d", i)
		delay *= 2
	}
	require.Greater(t, delay, 1000*time.Second, "the cap was reached")
	require.EqualValues(t, 18, testutil.ToFloat64(h.metrics.syncs.WithLabelValues("error")))
	h.requeue(h.ctx, parentKey, nil)
	require.Equal(t, 0, h.queue.NumRequeues(parentKey), "a success forgets the failures")
	require.EqualValues(t, 1, testutil.ToFloat64(h.metrics.syncs.WithLabelValues("ok")))
}

func TestRequeueByResult(t *testing.T) {
	tests := []struct {
		name     string
		err      error
		result   string
		failures int
		due      time.Duration
	}{
		{"busy", fmt.Errorf("ask: %w", &busyError{hook: "sync", after: 7 * time.Second}), "busy", 0, 7 * time.Second},
		{"related objects not listed", fmt.Errorf("%w: secrets", errRelatedNotSynced), "waiting", 1, 5 * time.Millisecond},
		{"failed", errors.New("no"), "error", 1, 5 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t)
			h.requeue(h.ctx, parentKey, tt.err)
			require.Equal(t, tt.failures, h.queue.NumRequeues(parentKey))
			require.Empty(t, h.due(tt.due-slack))
			require.Equal(t, []string{parentKey}, h.due(slack))
			require.EqualValues(t, 1, testutil.ToFloat64(h.metrics.syncs.WithLabelValues(tt.result)))
		})
	}
}

func TestBusyHookKeepsItsDelay(t *testing.T) {
	h := newHarness(t)
	for range 10 {
		h.requeue(h.ctx, parentKey, &busyError{hook: "sync", after: 2 * time.Second})
		require.Empty(t, h.due(2*time.Second-slack))
		require.Equal(t, []string{parentKey}, h.due(slack))
	}
	h.requeue(h.ctx, parentKey, &busyError{hook: "sync"})
	require.Equal(t, []string{parentKey}, h.drain(), "without a Retry-After there is no delay at all")
}

func TestStoppingIsNotCountedAsAFailure(t *testing.T) {
	h := newHarness(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.requeue(ctx, parentKey, context.Canceled)
	require.Equal(t, 0, h.queue.NumRequeues(parentKey))
	require.EqualValues(t, 0, testutil.ToFloat64(h.metrics.syncs.WithLabelValues("error")))
}

// Any number of workers and of adds of one key does not reconcile a parent twice
// concurrently; different parents are reconciled concurrently.
func TestOneKeyIsNeverProcessedConcurrently(t *testing.T) {
	q := newHarness(t).queue
	var busy [4]atomic.Int32
	var atOnce, most atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				i := key[0] - 'a'
				if busy[i].Add(1) > 1 {
					t.Errorf("%s is worked on twice", key)
				}
				most.Store(max(most.Load(), atOnce.Add(1)))
				time.Sleep(time.Millisecond)
				atOnce.Add(-1)
				busy[i].Add(-1)
				q.Done(key)
			}
		})
	}
	for i := range 400 {
		q.Add(string(rune('a' + i%4)))
		if i%10 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	q.ShutDown()
	wg.Wait()
	require.Greater(t, most.Load(), int32(1))
}

func TestResyncDelay(t *testing.T) {
	require.Equal(t, 1500*time.Millisecond, resyncDelay(1.5))
	require.Equal(t, time.Duration(0), resyncDelay(0))
	require.Negative(t, resyncDelay(-1))
}
