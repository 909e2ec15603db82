package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// Switch changes the mode of an External proxy and records its state: dead after it is
// certainly dead, alive before it may be alive.
func (f *Fleet) Switch(name string, mode external.Mode) error {
	both := f.externals[name]
	state := map[external.Mode]history.State{
		external.Serve: history.Alive, external.Refuse: history.Dead, external.Hang: history.Hanging,
	}[mode]
	record := func(state history.State) {
		for _, p := range both {
			f.RecordState(0, name, p.Addr(), state)
		}
	}
	if state == history.Alive {
		record(state)
	}
	err := errors.Join(both[0].Set(mode), both[1].Set(mode))
	if state != history.Alive {
		record(cmp.Or(state, history.Lying))
	}
	return err
}

// RecordState records the state of the proxy at an address from a time on, 0 means now.
func (f *Fleet) RecordState(at time.Duration, name, addr string, state history.State) {
	t := history.Truth{Stamp: history.Stamp{At: at}, Proxy: f.FullName(name), Endpoint: addr, State: state}
	if p := f.Known(name); p != nil {
		t.UID = string(p.UID)
	}
	f.cfg.Recorder.Add(history.Record{Truth: &t})
}

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
