package events

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
)

const (
	// component is who `kubectl describe` says that an Event is from.
	component = "egress-proxies"
	// queued is how many Events may wait: a fleet of a thousand that fails at once.
	queued = 1024
	// maxMessage is what the API allows, in bytes.
	maxMessage = 1024
	// drainTime is how long Events are still sent after the end.
	drainTime = 2 * time.Second
)

// Options of a Recorder.
type Options struct {
	// API has the Events.
	API v1.EventsGetter
	// Instance tells this process from others, such as the Pod's name.
	Instance string
	// Clock of Events, and of the pauses between tries.
	Clock clock.Clock
	// Log receives what cannot be sent, in few words.
	Log *slog.Logger
	// Registry receives the metrics.
	Registry prometheus.Registerer
}

// Recorder is a webhooks.Recorder. Run must run for anything to be sent.
type Recorder struct {
	opts       Options
	queue      chan *corev1.Event
	correlator *record.EventCorrelator
	metrics    *metrics
	complained time.Time
}

// New returns a Recorder and registers its metrics.
func New(opts Options) *Recorder {
	return &Recorder{
		opts: opts, queue: make(chan *corev1.Event, queued), metrics: newMetrics(opts.Registry),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{Clock: opts.Clock}),
	}
}

// Record implements webhooks.Recorder.
func (r *Recorder) Record(about corev1.ObjectReference, e webhooks.Event) {
	select {
	case r.queue <- r.event(about, e):
	default:
		r.metrics.count(resultQueueFull)
	}
}

func (r *Recorder) event(about corev1.ObjectReference, e webhooks.Event) *corev1.Event {
	now := metav1.NewTime(r.opts.Clock.Now())
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: util.GenerateEventName(about.Name, now.UnixNano()), Namespace: about.Namespace},
		InvolvedObject:      about,
		Type:                e.Type,
		Reason:              e.Reason,
		Message:             short(e.Message),
		Source:              corev1.EventSource{Component: component, Host: r.opts.Instance},
		ReportingController: component,
		ReportingInstance:   r.opts.Instance,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
}

// short is text in one line, as long as the API allows: a cloud's words may have
// several, and are a row of a table here.
func short(text string) string {
	const more = " ..."
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len(more)], "") + more
}

// Run sends until ctx ends, and then what is still queued, for a short while.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case e := <-r.queue:
			r.send(ctx, e)
		case <-ctx.Done():
			r.drain(context.WithoutCancel(ctx))
			return nil
		}
	}
}

func (r *Recorder) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	for {
		select {
		case e := <-r.queue:
			r.send(ctx, e)
		default:
			return
		}
	}
}

// send brings one Event to the API server, or counts why not.
func (r *Recorder) send(ctx context.Context, e *corev1.Event) {
	correlated, err := r.correlator.EventCorrelate(e)
	switch {
	case err != nil:
		r.failed(resultRefused, e, err)
	case correlated.Skip:
		r.metrics.count(resultRateLimited)
	default:
		r.write(ctx, correlated)
	}
}

// failed counts an Event that did not get there. Of an API server that does not
// answer, or does not let us, the log has a line a minute.
func (r *Recorder) failed(result string, e *corev1.Event, err error) {
	r.metrics.count(result)
	now := r.opts.Clock.Now()
	if now.Sub(r.complained) < time.Minute {
		return
	}
	r.complained = now
	args := []any{"proxy", e.InvolvedObject.Name, "namespace", e.InvolvedObject.Namespace, "reason", e.Reason, "result", result, "err", err}
	if result == resultRefused {
		args = append(args, "hint", refusedHint)
	}
	r.opts.Log.Warn("an Event was not sent; more may follow without a line", args...)
}

const refusedHint = "webhooks needs to create and patch Events in every namespace with Proxies, as manifests/fleet grants it; --events=false sends none"
