package standin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// reasonSyncError is the reason of the Warning Event for a failed sync.
const reasonSyncError = "SyncError"

// sync reconciles one parent with the response of its hook. A deleted parent is
// ignored.
func (c *controller) sync(ctx context.Context, key string) error {
	parent := c.cachedParent(key)
	if parent == nil {
		return nil
	}
	err := c.syncParent(ctx, key, parent)
	if quiet := err == nil || ctx.Err() != nil || errors.As(err, new(*busyError)) || errors.Is(err, errRelatedNotSynced); !quiet {
		c.events.Eventf(parent, corev1.EventTypeWarning, reasonSyncError, "Sync error: %s", err)
	}
	return err
}

func (c *controller) syncParent(ctx context.Context, key string, parent *object) error {
	// Before children are created, so that they are always finalized.
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
	answer, err := c.callHook(ctx, parent, observed, related)
	if err != nil {
		return err
	}
	// Before the writes below can fail: the hook relies on this call.
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
	// A failed child does not keep the status from being written.
	return errors.Join(childrenErr, c.replaceStatus(ctx, parent, answer.Status))
}

// callHook calls the sync hook, or the finalize hook once the parent is being
// deleted: also without our finalizer, while another one holds the parent, as
// Metacontroller does.
func (c *controller) callHook(ctx context.Context, parent *object, children, related objectMap) (*metacontroller.Response, error) {
	hook := c.hooks.sync
	finalizing := c.hooks.finalize != nil && parent.GetDeletionTimestamp() != nil
	if finalizing {
		hook = c.hooks.finalize
	}
	request, err := c.request(parent, children, related, finalizing)
	if err != nil {
		return nil, err
	}
	var answer metacontroller.Response
	if err := hook.call(ctx, request, &answer); err != nil {
		return nil, err
	}
	if answer.Children == nil {
		c.Log.Warn("the response has no children list: every child is deleted", "hook", hook.name, "parent", describe(parent))
	}
	return &answer, nil
}

func (c *controller) request(parent *object, children, related objectMap, finalizing bool) (*metacontroller.Request, error) {
	encodedParent, parentErr := parent.MarshalJSON()
	encodedChildren, childrenErr := children.encode()
	encodedRelated, relatedErr := related.encode()
	return &metacontroller.Request{
		Controller: c.manifest,
		Parent:     encodedParent,
		Children:   encodedChildren,
		Related:    encodedRelated,
		Finalizing: finalizing,
	}, errors.Join(parentErr, childrenErr, relatedErr)
}
