package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func noon() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// rig is a recorder, and an API server in memory that can be made to fail.
type rig struct {
	*Recorder
	api   *fake.Clientset
	clock *clocktesting.FakeClock
	log   *bytes.Buffer

	mu    sync.Mutex
	fails []error // of the next calls
	calls int
	stop  func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{api: fake.NewClientset(), clock: clocktesting.NewFakeClock(noon()), log: &bytes.Buffer{}}
	r.api.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls++
		if len(r.fails) == 0 {
			return false, nil, nil
		}
		err := r.fails[0]
		r.fails = r.fails[1:]
		return true, nil, err
	})
	r.Recorder = New(Options{API: r.api.CoreV1(), Instance: "pod-1", Clock: r.clock, Log: slog.New(slog.NewTextHandler(r.log, nil)), Registry: prometheus.NewRegistry()})
	return r
}

// run runs the recorder until the test ends or stop is called.
func (r *rig) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, r.Run(ctx))
	}()
	r.stop = func() { cancel(); <-done }
	t.Cleanup(r.stop)
}

func (r *rig) count(result string) int {
	return int(testutil.ToFloat64(r.results.WithLabelValues(result)))
}

func (r *rig) await(t *testing.T, result string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return r.count(result) == n }, 20*time.Second, time.Millisecond, "%s: %d", result, r.count(result))
}

func (r *rig) stored(t *testing.T) []corev1.Event {
	t.Helper()
	list, err := r.api.CoreV1().Events("crawl").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func px() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "crawl.example.com/v1alpha1", Kind: "Proxy", Namespace: "crawl", Name: "de-1", UID: "uid-1"}
}

func unhealthy(message string) proxy.Event {
	return proxy.Event{Type: corev1.EventTypeWarning, Reason: proxy.EventUnhealthy, Message: message}
}

func TestEventFields(t *testing.T) {
	r := newRig(t)
	r.run(t)
	r.Record(px(), unhealthy("DialFailed: dial: connection refused"))
	r.await(t, resultSent, 1)
	require.Len(t, r.stored(t), 1)
	e := r.stored(t)[0]
	assert.Equal(t, px(), e.InvolvedObject)
	assert.Equal(t, []string{"Warning", "Unhealthy", "DialFailed: dial: connection refused"}, []string{e.Type, e.Reason, e.Message})
	assert.Equal(t, corev1.EventSource{Component: "egress-proxies", Host: "pod-1"}, e.Source)
	assert.Equal(t, "egress-proxies", e.ReportingController)
	assert.Equal(t, noon(), e.FirstTimestamp.UTC())
	assert.Equal(t, int32(1), e.Count)
	assert.True(t, strings.HasPrefix(e.Name, "de-1."), e.Name)
}

func TestRepeatedEventIncrementsItsCount(t *testing.T) {
	r := newRig(t)
	r.run(t)
	for i := range 3 {
		r.Record(px(), unhealthy("DialFailed"))
		r.await(t, resultSent, i+1)
		r.clock.Step(time.Minute)
	}
	require.Len(t, r.stored(t), 1)
	assert.Equal(t, int32(3), r.stored(t)[0].Count)
	assert.Equal(t, noon().Add(2*time.Minute), r.stored(t)[0].LastTimestamp.UTC())
	assert.Equal(t, noon(), r.stored(t)[0].FirstTimestamp.UTC())
}

// The API server forgets Events after an hour.
func TestExpiredEventIsCreatedAgain(t *testing.T) {
	r := newRig(t)
	r.run(t)
	r.Record(px(), unhealthy("DialFailed"))
	r.await(t, resultSent, 1)
	require.NoError(t, r.api.CoreV1().Events("crawl").Delete(t.Context(), r.stored(t)[0].Name, metav1.DeleteOptions{}))
	r.Record(px(), unhealthy("DialFailed"))
	r.await(t, resultSent, 2)
	require.Len(t, r.stored(t), 1)
}

// A proxy that flaps all day fills neither etcd nor the screen, and takes nothing
// from others.
func TestEventsOfOneProxyAreRateLimited(t *testing.T) {
	r := newRig(t)
	r.run(t)
	const flood = 200
	for i := range flood {
		r.Record(px(), unhealthy(fmt.Sprintf("Reason%d", i)))
	}
	other := px()
	other.Name, other.UID = "de-2", "uid-2"
	r.Record(other, unhealthy("DialFailed"))
	require.Eventually(t, func() bool { return r.count(resultSent)+r.count(resultRateLimited) == flood+1 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, 25+1, r.count(resultSent))
	assert.Less(t, len(r.stored(t)), 12, "similar ones are combined")
	assert.Zero(t, r.count(resultQueueFull))
}

// While the API server hangs Record returns at once, and Events beyond the queue
// are counted.
func TestHangingAPIServerBlocksNoRecord(t *testing.T) {
	r := newRig(t)
	hang := make(chan struct{})
	r.api.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		<-hang
		return true, a.(clienttesting.CreateAction).GetObject(), nil
	})
	r.run(t)
	const more = 500
	for i := range queueSize + 1 + more {
		about := px()
		about.Name = fmt.Sprintf("de-%d", i)
		r.Record(about, unhealthy("x"))
	}
	assert.GreaterOrEqual(t, r.count(resultQueueFull), more)
	dropped := r.count(resultQueueFull)
	close(hang)
	r.await(t, resultSent, queueSize+1+more-dropped)
}

func TestRefusedEventIsNotRetried(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("no RoleBinding"))
	r := newRig(t)
	r.fails = []error{forbidden, forbidden, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Event").GroupKind(), "x", nil)}
	r.run(t)
	for i := range 3 {
		r.Record(px(), unhealthy(fmt.Sprint(i)))
	}
	r.await(t, resultRefused, 3)
	r.Record(px(), unhealthy("now it may"))
	r.await(t, resultSent, 1)
	r.stop()
	assert.Equal(t, 4, r.calls)
	assert.Equal(t, 1, strings.Count(r.log.String(), "an Event was not sent"), "a line a minute: %s", r.log)
	assert.Contains(t, r.log.String(), "manifests/fleet", "it says what to do")
}

func TestUnavailableAPIServerIsRetried(t *testing.T) {
	r := newRig(t)
	r.fails = []error{errors.New("connection refused"), apierrors.NewServiceUnavailable("starting"), apierrors.NewTooManyRequests("busy", 1)}
	r.run(t)
	r.Record(px(), unhealthy("DialFailed"))
	for _, pause := range []time.Duration{firstBackoff, 2 * firstBackoff, 4 * firstBackoff} {
		require.Eventually(t, r.clock.HasWaiters, 20*time.Second, time.Millisecond)
		assert.Zero(t, r.count(resultSent))
		r.clock.Step(pause)
	}
	r.await(t, resultSent, 1)
}

func TestRetriesEndWhenTheAPIServerStaysUnavailable(t *testing.T) {
	r := newRig(t)
	for range tries {
		r.fails = append(r.fails, errors.New("connection refused"))
	}
	r.run(t)
	r.Record(px(), unhealthy("DialFailed"))
	for range tries - 1 {
		require.Eventually(t, r.clock.HasWaiters, 20*time.Second, time.Millisecond)
		r.clock.Step(time.Minute)
	}
	r.await(t, resultUnreachable, 1)
	r.Record(px(), unhealthy("another"))
	r.await(t, resultSent, 1)
}

// An earlier try got there, and its answer did not get here.
func TestAlreadyExistsCountsAsSent(t *testing.T) {
	r := newRig(t)
	r.fails = []error{apierrors.NewAlreadyExists(corev1.Resource("events"), "x")}
	r.run(t)
	r.Record(px(), unhealthy("DialFailed"))
	r.await(t, resultSent, 1)
}

func TestQueueIsDrainedAtTheEnd(t *testing.T) {
	t.Run("what is queueSize is sent", func(t *testing.T) {
		r := newRig(t)
		for i := range 10 {
			r.Record(px(), unhealthy(fmt.Sprint(i)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, r.Run(ctx))
		assert.Equal(t, 10, r.count(resultSent))
	})
	t.Run("a pause ends with it", func(t *testing.T) {
		r := newRig(t)
		r.fails = []error{errors.New("connection refused")}
		r.run(t)
		r.Record(px(), unhealthy("DialFailed"))
		require.Eventually(t, r.clock.HasWaiters, 20*time.Second, time.Millisecond)
		r.stop()
		assert.Equal(t, 1, r.count(resultUnreachable))
	})
}

func TestLongMessagesAreTruncated(t *testing.T) {
	assert.Equal(t, strings.Repeat("x", maxMessage), oneLine(strings.Repeat("x", maxMessage)))
	for _, long := range []string{strings.Repeat("x", maxMessage+1), strings.Repeat("é", maxMessage)} {
		got := oneLine(long)
		assert.LessOrEqual(t, len(got), maxMessage)
		assert.True(t, utf8.ValidString(got))
		assert.True(t, strings.HasSuffix(got, " ..."))
	}
	assert.Equal(t, "one two three", oneLine("one\r\ntwo\nthree\n"))
}
