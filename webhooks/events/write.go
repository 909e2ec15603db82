package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// The client's rate limit. The Events of a fleet that flips at once take minutes,
// and other clients of the API server are not slowed down.
const (
	callsPerSecond = 10
	callBurst      = 50
)

const (
	// callTimeout bounds one call of the API server.
	callTimeout = 5 * time.Second
	// tries and firstBackoff are the retries of an Event while the API server does not
	// answer. The backoff doubles, to half a minute in sum. A rollout of the API
	// server takes less.
	tries        = 6
	firstBackoff = time.Second
)

// Client returns the API of Events on a copy of cfg, and a function that closes
// its connections. It does not call the API server.
func Client(cfg *rest.Config) (api typedv1.EventsGetter, closeIdle func(), err error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst, cfg.Timeout = callsPerSecond, callBurst, callTimeout
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("create a client for Events: %w", err)
	}
	core, err := typedv1.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, nil, fmt.Errorf("create a client for Events: %w", err)
	}
	return core, client.CloseIdleConnections, nil
}

// write sends a correlated Event, with retries while the API server does not
// answer.
func (r *Recorder) write(ctx context.Context, c *record.EventCorrelateResult) {
	for try, backoff := 1, firstBackoff; ; try, backoff = try+1, 2*backoff {
		err := r.call(ctx, c)
		switch {
		case err == nil:
			r.count(resultSent)
			return
		case !temporary(err):
			r.failed(resultRefused, c.Event, err)
			return
		case try < tries:
			select {
			case <-r.opts.Clock.After(backoff):
				continue
			case <-ctx.Done():
			}
		}
		r.failed(resultUnreachable, c.Event, err)
		return
	}
}

// call creates an Event, or increments the count of an equal one. That one may
// have expired: the API server keeps Events for an hour.
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
		return nil // an earlier try succeeded, and its answer was lost
	}
	if err == nil {
		r.correlator.UpdateState(stored)
	}
	return err
}

// temporary reports whether a retry may help: the API server did not answer, or
// its status is a temporary one.
func temporary(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}
