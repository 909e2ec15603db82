package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Latched are the names of the Proxies with a permanent failure, which only an edit ends.
func (f *Fleet) Latched() []string {
	var out []string
	for _, name := range f.Names() {
		p := f.Known(name)
		if p == nil || p.DeletionTimestamp != nil {
			continue
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned)
		if c != nil && c.Reason == v1alpha1.ReasonPermanentError {
			out = append(out, name)
		}
	}
	return out
}

// Mend edits the latched Proxies, as a user would once the cause is gone, and returns how
// many it edited.
func (f *Fleet) Mend(ctx context.Context) int {
	mended := 0
	for _, name := range f.Latched() {
		if !f.busy[name].TryLock() {
			continue
		}
		if p, err := f.get(ctx, name); err == nil && p != nil && p.DeletionTimestamp == nil {
			_ = f.patch(ctx, p, true, rand.Uint64()) // act records the result; the next call retries
			mended++
		}
		f.busy[name].Unlock()
	}
	return mended
}

// NotReady are the Proxies that are not Ready for their current spec, with their phases
// and conditions.
func (f *Fleet) NotReady() map[string]string {
	out := map[string]string{}
	for _, name := range f.Names() {
		p := f.Known(name)
		switch {
		case p == nil:
			out[name] = "missing"
		case p.Status.Phase != v1alpha1.PhaseReady || p.Status.ObservedGeneration != p.Generation:
			out[name] = how(p)
		}
	}
	return out
}

// how describes a Proxy that is not Ready.
func how(p *v1alpha1.Proxy) string {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned)
	if c == nil || c.Status == metav1.ConditionTrue {
		return string(p.Status.Phase)
	}
	return fmt.Sprintf("%s (%s: %s)", p.Status.Phase, c.Reason, c.Message)
}
