package walk

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	// newPort is what spec.port is edited to.
	newPort = 3129
	// newsTravel is how long discovery may take to hear of an edit.
	newsTravel = time.Second
)

// replace is step 4. A crawler asks for the proxy all the while.
func (w *walker) replace(ctx context.Context) error {
	before, err := w.ready(ctx, berlin)
	if err != nil {
		return err
	}
	watch := w.startLeasing(ctx, berlin)
	defer watch.stop()
	edited := time.Now()
	after, err := w.editPort(ctx, before, watch)
	if err != nil {
		return err
	}
	grants := watch.stop()
	if err := checkGrants(grants, before, after, edited); err != nil {
		return err
	}
	w.say("a crawler asked for it %d times meanwhile: never granted in between, never at a wrong address", grants.asked)
	if _, err := w.pid(ctx, after); err != nil {
		return err
	}
	return w.leaseOnce(ctx, map[string]string{"city": berlin}, otherTarget) // for the first target it cools
}

// editPort edits, and returns the Proxy when it is Ready on its new instance and
// was granted there.
func (w *walker) editPort(ctx context.Context, before *v1alpha1.Proxy, watch *leasing) (*v1alpha1.Proxy, error) {
	patch := fmt.Appendf(nil, `{"spec":{"port":%d}}`, newPort)
	if _, err := w.proxies().Patch(ctx, berlin, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return nil, fmt.Errorf("edit spec.port of %s: %w", berlin, err)
	}
	w.say("%s runs at %s:%d as instance %s; edited spec.port to %d", berlin, before.Status.IP, before.Status.Port, before.Status.InstanceID, newPort)
	var after *v1alpha1.Proxy
	took, err := await(ctx, patience, func(ctx context.Context) error {
		var err error
		if after, err = w.ready(ctx, berlin); err != nil {
			return err
		}
		if after.Status.InstanceID == before.Status.InstanceID || after.Status.Port != newPort {
			return fmt.Errorf("%s is Ready on instance %s at port %d, want a new instance at port %d", berlin, after.Status.InstanceID, after.Status.Port, newPort)
		}
		return watch.grantedAt(newPort)
	})
	if err != nil {
		return nil, err
	}
	w.say("Ready again after %s at %s:%d as instance %s", rounded(took), after.Status.IP, after.Status.Port, after.Status.InstanceID)
	if after.UID != before.UID {
		return nil, fmt.Errorf("%s was re-created, want a new instance of the same Proxy", berlin)
	}
	return after, nil
}

// checkGrants holds every grant to what was true when it was asked for: the old
// address until the news of the edit came, then nothing, then the new address.
func checkGrants(got grants, before, after *v1alpha1.Proxy, edited time.Time) error {
	seenNew := false
	for _, g := range got.list {
		isNew := g.host == after.Status.IP && g.port == int(after.Status.Port)
		isOld := g.host == before.Status.IP && g.port == int(before.Status.Port)
		switch {
		case isNew:
			seenNew = true
		case !isOld:
			return fmt.Errorf("%s was granted at %s:%d, which is neither its old nor its new address", berlin, g.host, g.port)
		case seenNew:
			return fmt.Errorf("%s was granted at its old address %s:%d after it had been granted at its new one", berlin, g.host, g.port)
		case g.asked.After(edited.Add(newsTravel)):
			return fmt.Errorf("%s was granted at its old address %s after the edit", berlin, rounded(g.asked.Sub(edited)))
		}
		if g.err != nil {
			return g.err
		}
	}
	if got.refused == 0 {
		return fmt.Errorf("%s was granted without a break, although its instance was replaced", berlin)
	}
	return got.err
}
