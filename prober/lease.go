package prober

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	renewEvery   = 15 * time.Second
	renewRetry   = 2 * time.Second
	renewTimeout = 10 * time.Second
	// leaseSeconds is what the Lease says of itself. Discovery goes by its own
	// --verdict-max-age.
	leaseSeconds = 60
)

// heartbeat renews the Lease of a shard for as long as the prober does its work.
// It is a sign of life, not a lock: when it stops, discovery stops believing the
// shard's verdicts. It is not given up at the end of the process, so that a
// restart makes no verdict doubtful.
type heartbeat struct {
	leases  coordination.LeaseInterface
	shard   v1alpha1.Shard
	holder  string
	alive   func() error
	clock   clock.WithTicker
	metrics *metrics
	log     *slog.Logger
}

// run renews until ctx ends.
func (h *heartbeat) run(ctx context.Context) error {
	for {
		wait := h.beat(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-h.clock.After(wait):
		}
	}
}

// beat renews once if the prober is alive and returns the time to the next
// try.
func (h *heartbeat) beat(ctx context.Context) time.Duration {
	if err := h.alive(); err != nil {
		h.metrics.renewals.WithLabelValues("withheld").Inc()
		h.log.Debug("lease not renewed", "err", err)
		return renewRetry
	}
	limited, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	err := h.renew(limited)
	if ctx.Err() != nil {
		return renewRetry
	}
	h.metrics.renewals.WithLabelValues(result(err)).Inc()
	if err != nil {
		h.log.Warn("cannot renew the lease, will retry", "lease", h.shard.LeaseName(), "err", err)
		return renewRetry
	}
	h.metrics.renewed.Set(float64(h.clock.Now().Unix()))
	return renewEvery
}

func (h *heartbeat) renew(ctx context.Context) error {
	name := h.shard.LeaseName()
	lease, err := h.leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		h.sign(lease)
		if _, err = h.leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create lease %s: %w", name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("get lease %s: %w", name, err)
	}
	h.sign(lease)
	if _, err = h.leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update lease %s: %w", name, err)
	}
	return nil
}

// sign puts this process and the present time into a Lease.
func (h *heartbeat) sign(l *coordinationv1.Lease) {
	now := metav1.NewMicroTime(h.clock.Now())
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[v1alpha1.LabelProberShard] = h.shard.LeaseLabel()
	if held := l.Spec.HolderIdentity; held == nil || *held != h.holder {
		if held != nil {
			l.Spec.LeaseTransitions = ptr.To(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
		}
		l.Spec.HolderIdentity, l.Spec.AcquireTime = ptr.To(h.holder), &now
	}
	l.Spec.RenewTime = &now
	l.Spec.LeaseDurationSeconds = ptr.To[int32](leaseSeconds)
}
