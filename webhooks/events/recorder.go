// Package events sends Events about Proxies to the API server, best effort.
//
// It builds on the correlator of client-go's tools/record, which counts repeated
// Events, combines similar ones and rate limits each object (burst 25, then one in
// five minutes, separately for Normal and Warning). It does not use the
// broadcaster of that package, which drops Events without a count. Nor does it use
// tools/events, which has no rate limit, starts a goroutine for each Event, and
// merges Events of one reason under the message of the first.
//
// A bounded queue separates the hooks from the API server: while the API server is
// slow or gone the queue fills and Events are dropped, and no hook waits.
package events

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

const (
	// component is the source of an Event in `kubectl describe`.
	component = "egress-proxies"
	// queueSize is a fleet of a thousand that fails at once.
	queueSize = 1024
	// maxMessage is what the API allows, in bytes.
	maxMessage = 1024
	// drainTimeout bounds how long queued Events are sent after the end.
	drainTimeout = 2 * time.Second
)

// Results of an Event, for the metric.
const (
	resultSent        = "sent"
	resultQueueFull   = "queue_full"
	resultRateLimited = "rate_limited"
	resultRefused     = "refused"
	resultUnreachable = "unreachable"
)

// Options of a Recorder.
type Options struct {
	// API has the Events.
	API typedv1.EventsGetter
	// Instance identifies this process, such as the Pod's name.
	Instance string
	// Clock of Events, and of the backoff between retries.
	Clock clock.Clock
	// Log receives failures, one line a minute.
	Log *slog.Logger
	// Registry receives the metrics.
	Registry prometheus.Registerer
}

// Recorder is a webhooks.Recorder. Run must run for Events to be sent.
type Recorder struct {
	opts       Options
	queue      chan *corev1.Event
	correlator *record.EventCorrelator
	results    *prometheus.CounterVec
	logged     time.Time // when the last failure was logged
}

// New returns a Recorder and registers its metrics.
func New(opts Options) *Recorder {
	r := &Recorder{
		opts: opts, queue: make(chan *corev1.Event, queueSize),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{Clock: opts.Clock}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proxy_operator_events_total",
			Help: "Kubernetes Events about Proxies by result: sent, or dropped because the queue was full, one Proxy had too many (rate_limited), the API server refused them, or it did not answer (unreachable).",
		}, []string{"result"}),
	}
	for _, result := range []string{resultSent, resultQueueFull, resultRateLimited, resultRefused, resultUnreachable} {
		r.results.WithLabelValues(result)
	}
	opts.Registry.MustRegister(r.results)
	return r
}

func (r *Recorder) count(result string) { r.results.WithLabelValues(result).Inc() }

// Record implements webhooks.Recorder.
func (r *Recorder) Record(about corev1.ObjectReference, e proxy.Event) {
	now := metav1.NewTime(r.opts.Clock.Now())
	event := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: util.GenerateEventName(about.Name, now.UnixNano()), Namespace: about.Namespace},
		InvolvedObject:      about,
		Type:                e.Type,
		Reason:              e.Reason,
		Message:             oneLine(e.Message),
		Source:              corev1.EventSource{Component: component, Host: r.opts.Instance},
		ReportingController: component,
		ReportingInstance:   r.opts.Instance,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
	select {
	case r.queue <- event:
	default:
		r.count(resultQueueFull)
	}
}

// oneLine is text in one line, as long as the API allows. A cloud's error may have
// several lines, and `kubectl get events` prints rows.
func oneLine(text string) string {
	const more = " ..."
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len(more)], "") + more
}

// Run sends until ctx ends, and then drains the queue for a short while.
func (r *Recorder) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case e := <-r.queue:
			r.send(ctx, e)
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	for len(r.queue) > 0 {
		r.send(ctx, <-r.queue)
	}
	return nil
}

// send writes one Event to the API server, or counts why not.
func (r *Recorder) send(ctx context.Context, e *corev1.Event) {
	correlated, err := r.correlator.EventCorrelate(e)
	switch {
	case err != nil:
		r.failed(resultRefused, e, err)
	case correlated.Skip:
		r.count(resultRateLimited)
	default:
		r.write(ctx, correlated)
	}
}

// failed counts an Event that was not sent. It logs one line a minute at most.
func (r *Recorder) failed(result string, e *corev1.Event, err error) {
	r.count(result)
	now := r.opts.Clock.Now()
	if now.Sub(r.logged) < time.Minute {
		return
	}
	r.logged = now
	args := []any{"proxy", e.InvolvedObject.Name, "namespace", e.InvolvedObject.Namespace, "reason", e.Reason, "result", result, "err", err}
	if result == resultRefused {
		args = append(args, "hint", "webhooks needs to create and patch Events in every namespace with Proxies, as manifests/fleet grants it; --events=false sends none")
	}
	r.opts.Log.Warn("an Event was not sent; more may follow without a line", args...)
}
