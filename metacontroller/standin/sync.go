package standin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// reasonSyncError is the reason of the Warning event that a failed sync leaves
// on its parent.
const reasonSyncError = "SyncError"

// sync brings one parent's world closer to what its hook wants. A parent that is
// gone needs nothing.
func (c *controller) sync(ctx context.Context, key string) error {
	parent := c.cachedParent(key)
	if parent == nil {
		return nil
	}
	err := c.syncParent(ctx, key, parent)
	var busy *busyError
	quiet := err == nil || ctx.Err() != nil || errors.As(err, &busy) || errors.Is(err, errRelatedNotSynced)
	if !quiet {
		c.events.Eventf(parent, corev1.EventTypeWarning, reasonSyncError, "Sync error: %s", err)
	}
	return err
}

func (c *controller) syncParent(ctx context.Context, key string, parent *object) error {
	// First of all, so that whatever is made below gets its chance to be
	// cleaned up.
	parent, err := c.ensureFinalizer(ctx, parent)
	if err != nil {
		return err
	}
	observed, err := c.claimChildren(ctx, parent)
	if err != nil {
		return err
	}
	related, err := c.related.objects(ctx, parent)
	if err != nil {
		return err
	}
	answer, err := c.ask(ctx, parent, observed, related)
	if err != nil {
		return err
	}
	// Before anything below can fail: it is a promise to the hook.
	if delay := resyncDelay(answer.ResyncAfterSeconds); delay > 0 {
		c.queue.AddAfter(key, delay)
	}
	if answer.Finalized {
		if parent, err = c.removeFinalizer(ctx, parent); err != nil {
			return err
		}
	}
	desired, err := desiredChildren(parent, answer.Children)
	if err != nil {
		return err
	}
	var childrenErr error
	if c.managesChildren(parent) {
		childrenErr = c.reconcileChildren(ctx, parent, observed, desired)
	}
	if childrenErr != nil {
		childrenErr = fmt.Errorf("reconcile children: %w", childrenErr)
	}
	// The status is the hook's view, which a failed child does not change.
	return errors.Join(childrenErr, c.replaceStatus(ctx, parent, answer.Status))
}
