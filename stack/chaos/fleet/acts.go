package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/witness"
)

// Do runs one of plan's actions on a Proxy. Without a response of the API server the
// action is recorded as uncertain, without a retry. Do returns false when another action
// on this Proxy runs, or its state is unknown.
func (f *Fleet) Do(ctx context.Context, name, variant string, pick uint64) bool {
	if !f.busy[name].TryLock() {
		return false
	}
	defer f.busy[name].Unlock()
	p, err := f.get(ctx, name)
	switch {
	case err != nil:
		return false
	case p == nil:
		return f.create(ctx, name, true) == nil
	case p.DeletionTimestamp != nil && variant != plan.ActRecreate:
		return false
	}
	switch variant {
	case plan.ActDelete:
		return f.delete(ctx, p) == nil
	case plan.ActRecreate:
		if p.DeletionTimestamp == nil && f.delete(ctx, p) != nil {
			return false
		}
		return f.ensure(ctx, name, string(p.UID)) == nil
	}
	return f.patch(ctx, p, variant == plan.ActReplace, pick) == nil
}

// get returns nil when the Proxy does not exist.
func (f *Fleet) get(ctx context.Context, name string) (*v1alpha1.Proxy, error) {
	u, err := f.objects.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return toProxy(u)
}

func (f *Fleet) create(ctx context.Context, name string, again bool) error {
	act := history.Act{Verb: history.Create, Proxy: f.FullName(name)}
	if again {
		act.Verb = history.Recreate
	}
	p := f.proxy(name)
	act.Wanted = witness.WantedOf(p)
	u, err := fromProxy(p)
	if err != nil {
		return err
	}
	return f.act(act, func() (*unstructured.Unstructured, error) {
		return f.objects.Create(ctx, u, metav1.CreateOptions{FieldManager: "chaos"})
	})
}

func (f *Fleet) delete(ctx context.Context, p *v1alpha1.Proxy) error {
	act := history.Act{Verb: history.Delete, Proxy: f.FullName(p.Name), UID: string(p.UID)}
	precondition := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(p.UID)}}
	return f.act(act, func() (*unstructured.Unstructured, error) { return nil, f.objects.Delete(ctx, p.Name, precondition) })
}

func (f *Fleet) patch(ctx context.Context, p *v1alpha1.Proxy, replaces bool, pick uint64) error {
	patch := f.edit(p, replaces, pick)
	patch["metadata"] = map[string]any{"uid": p.UID}
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	edited := p.DeepCopy()
	if err := json.Unmarshal(body, edited); err != nil { // it merges as our patches need
		return fmt.Errorf("apply a patch: %w", err)
	}
	act := history.Act{
		Verb: history.Edit, Proxy: f.FullName(p.Name), UID: string(p.UID), Wanted: witness.WantedOf(edited),
		Replaces: replaces && p.Spec.Mode == v1alpha1.ModeManaged,
	}
	return f.act(act, func() (*unstructured.Unstructured, error) {
		return f.objects.Patch(ctx, p.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "chaos"})
	})
}

// act runs a request and records its result.
func (f *Fleet) act(a history.Act, do func() (*unstructured.Unstructured, error)) error {
	a.Asked = f.cfg.Recorder.Now()
	u, err := do()
	a.Answered = f.cfg.Recorder.Now()
	a.At = a.Asked
	a.Failed, a.Uncertain = Outcome(err)
	if err == nil && u != nil {
		a.UID, a.Generation = string(u.GetUID()), u.GetGeneration()
		if p, errRead := toProxy(u); errRead == nil {
			a.Wanted = witness.WantedOf(p)
		}
	}
	f.cfg.Recorder.Add(history.Record{Act: &a})
	return err
}

// Outcome of a request: it failed when the API server rejected it or was down, and is
// uncertain without a response.
func Outcome(err error) (failed, uncertain bool) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false, false
	case errors.Is(err, syscall.ECONNREFUSED):
		return true, false
	case errors.As(err, &status):
		code := status.Status().Code
		return code < 500, code >= 500
	}
	return false, true
}
