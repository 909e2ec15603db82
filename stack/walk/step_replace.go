package walk

import (
	"context"
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	newPort = 3129 // the new spec.port
	// propagation bounds the time until discovery sees an edit: far more than it takes, because the
	// machine may be loaded.
	propagation = 5 * time.Second
)

// edit of a spec that replaces the instance.
type edit struct {
	proxy       string
	patch, what string                            // a merge patch, and what describes it
	applied     func(after *v1alpha1.Proxy) error // returns nil when the new instance matches the edit
}

// replace is the step that edits the port of a Pod.
func (w *walker) replace(ctx context.Context) error {
	after, err := w.replaceBy(ctx, edit{
		proxy: berlin,
		patch: fmt.Sprintf(`{"spec":{"port":%d}}`, newPort),
		what:  fmt.Sprintf("edited spec.port to %d", newPort),
		applied: func(after *v1alpha1.Proxy) error {
			if after.Status.Port != newPort {
				return fmt.Errorf("%s listens on port %d, want %d", after.Name, after.Status.Port, newPort)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	if _, err := w.pid(ctx, after); err != nil {
		return err
	}
	if err := w.leaseOnce(ctx, map[string]string{"city": berlin}, otherTarget); err != nil { // it is in cooldown for the first target
		return err
	}
	return w.events(ctx, berlin, "Created", "Healthy", v1alpha1.ReasonReplacing)
}

// replaceBy edits the Proxy while a crawler leases it, and checks every grant against the address
// that was right at the time.
func (w *walker) replaceBy(ctx context.Context, e edit) (*v1alpha1.Proxy, error) {
	before, err := w.ready(ctx, e.proxy)
	if err != nil {
		return nil, err
	}
	watch := w.startLeasing(ctx, e.proxy)
	defer watch.stop()
	if _, err := w.kubectl(ctx, nil, "patch", "px", e.proxy, "--type", "merge", "-p", e.patch); err != nil {
		return nil, err
	}
	edited := time.Now()
	after, err := w.awaitReplaced(ctx, e, before, watch)
	if err != nil {
		return nil, err
	}
	grants := watch.stop()
	if err := checkGrants(grants, before, after, edited); err != nil {
		return nil, err
	}
	w.say("a crawler asked for it %d times meanwhile: never granted in between, never at a wrong address", grants.asked)
	return after, nil
}

// awaitReplaced waits until the Proxy is Ready on its new instance and was granted there.
func (w *walker) awaitReplaced(ctx context.Context, e edit, before *v1alpha1.Proxy, watch *leasing) (*v1alpha1.Proxy, error) {
	w.say("%s runs at %s:%d as instance %s; %s", e.proxy, before.Status.IP, before.Status.Port, before.Status.InstanceID, e.what)
	var after *v1alpha1.Proxy
	took, err := await(ctx, patience, func(ctx context.Context) error {
		var err error
		if after, err = w.ready(ctx, e.proxy); err != nil {
			return err
		}
		if after.Status.InstanceID == before.Status.InstanceID {
			return fmt.Errorf("%s is Ready on instance %s, want a new one", e.proxy, after.Status.InstanceID)
		}
		if err := e.applied(after); err != nil {
			return err
		}
		return watch.grantedAt(after.Status.IP, int(after.Status.Port))
	})
	if err != nil {
		return nil, err
	}
	w.say("Ready again after %s at %s:%d as instance %s", rounded(took), after.Status.IP, after.Status.Port, after.Status.InstanceID)
	if after.UID != before.UID {
		return nil, fmt.Errorf("%s was re-created, want a new instance of the same Proxy", e.proxy)
	}
	return after, nil
}

// checkGrants checks the order of grants: at the old address until the edit has propagated, then
// none, then at the new address.
func checkGrants(got grants, before, after *v1alpha1.Proxy, edited time.Time) error {
	seenNew, name := false, before.Name
	for _, g := range got.list {
		isNew := g.host == after.Status.IP && g.port == int(after.Status.Port)
		isOld := g.host == before.Status.IP && g.port == int(before.Status.Port)
		switch {
		case isNew:
			seenNew = true
		case !isOld:
			return fmt.Errorf("%s was granted at %s:%d, which is neither its old nor its new address", name, g.host, g.port)
		case seenNew:
			return fmt.Errorf("%s was granted at its old address %s:%d after it had been granted at its new one", name, g.host, g.port)
		case g.asked.After(edited.Add(propagation)):
			return fmt.Errorf("%s was granted at its old address %s after the edit", name, rounded(g.asked.Sub(edited)))
		}
		if g.err != nil {
			return g.err
		}
	}
	if got.refused == 0 {
		return fmt.Errorf("%s was granted without a break, although its instance was replaced", name)
	}
	return got.err
}
