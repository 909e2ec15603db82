package events

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

const (
	// callTimeout bounds one call of the API server.
	callTimeout = 5 * time.Second
	// tries and firstPause say how long an Event waits for an API server that does
	// not answer: half a minute, the pauses doubling. A rollout of it takes less.
	tries      = 6
	firstPause = time.Second
)

// write sends a correlated Event, again and again while the API server does not
// answer.
func (r *Recorder) write(ctx context.Context, c *record.EventCorrelateResult) {
	pause := firstPause
	for try := 1; ; try++ {
		err := r.call(ctx, c)
		switch {
		case err == nil:
			r.metrics.count(resultSent)
			return
		case !temporary(err):
			r.failed(resultRefused, c.Event, err)
			return
		case try == tries || !r.wait(ctx, pause):
			r.failed(resultUnreachable, c.Event, err)
			return
		}
		pause *= 2
	}
}

// wait returns false when ctx ended first.
func (r *Recorder) wait(ctx context.Context, pause time.Duration) bool {
	timer := r.opts.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// call creates an Event, or counts up the one that says the same already. That one
// may be gone by now: the API server keeps Events for an hour.
func (r *Recorder) call(ctx context.Context, c *record.EventCorrelateResult) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	api, e := r.opts.API.Events(c.Event.Namespace), c.Event
	var stored *corev1.Event
	var err error
	if e.Count > 1 {
		stored, err = api.Patch(ctx, e.Name, types.StrategicMergePatchType, c.Patch, metav1.PatchOptions{})
	}
	if e.Count <= 1 || apierrors.IsNotFound(err) {
		e.ResourceVersion = ""
		stored, err = api.Create(ctx, e, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier try got there, and its answer did not get here
	}
	if err == nil {
		r.correlator.UpdateState(stored)
	}
	return err
}

// temporary reports whether another try may help: the API server did not answer,
// or says so itself.
func temporary(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}
