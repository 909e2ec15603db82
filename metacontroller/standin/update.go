package standin

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// update reads the object that cached is a copy of, lets change edit it, and
// writes it when change returns true, again on a conflict. It returns the
// object as it then is. Another object under the old name (another UID) is
// "not found": a stale cache must not act on a successor.
func update(ctx context.Context, r *resource, cached *object, change func(*object) bool, subresources ...string) (*object, error) {
	client := r.in(cached.GetNamespace())
	var out *object
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		current, err := client.Get(ctx, cached.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if current.GetUID() != cached.GetUID() {
			return apierrors.NewNotFound(r.gvr.GroupResource(), cached.GetName())
		}
		out = current
		if !change(current) {
			return nil
		}
		out, err = client.Update(ctx, current, metav1.UpdateOptions{}, subresources...)
		return err
	})
	return out, err
}

// replaceStatus makes the status of parent what the hook answered, plus the
// observedGeneration, if that is not what it is. A parent that is gone or that
// others keep changing is no error: there is nothing to report to, or an event
// comes.
func (c *controller) replaceStatus(ctx context.Context, parent *object, status map[string]any) error {
	if status == nil {
		status = map[string]any{}
	}
	status["observedGeneration"] = parent.GetGeneration()
	_, err := update(ctx, c.parent, parent, func(current *object) bool {
		if reflect.DeepEqual(current.Object["status"], any(status)) {
			return false
		}
		current.Object["status"] = status
		return true
	}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("update status: %w", err)
	}
	return nil
}
