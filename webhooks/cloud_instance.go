package webhooks

import (
	"fmt"
	"net/netip"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// CloudNews is what the cloud adapter said beside the instance.
type CloudNews struct {
	// Problem is why it did not tell what is, nil when it did or was not asked.
	Problem *trouble
	// Failure is why the wanted instance is not there yet, nil when all is well.
	Failure *adapter.Failure
	// Abandoned: the Proxy's annotation says to let the instance be.
	Abandoned bool
}

// Bounds of the status fields that an answer's fields go into. An answer that
// does not fit would keep the whole status from being written.
const (
	maxInstanceID = 128
	maxHash       = 63
)

// vmInstance maps an answer of the adapter. An answer that cannot be true is
// none: it unwraps to adapter.ErrUnavailable, and nothing follows from it.
func vmInstance(got adapter.Instance) (Instance, error) {
	if err := credible(got); err != nil {
		return Instance{}, fmt.Errorf("%w: its answer cannot be true: %w", adapter.ErrUnavailable, err)
	}
	in := Instance{
		VM: true, State: vmState(got), Terminating: got.State == adapter.StateStopping,
		ProviderID: got.ProviderID, ID: got.InstanceID, IP: got.IP, Port: got.Port, SpecHash: got.SpecHash,
	}
	if got.CreatedAt != nil {
		in.CreatedAt = *got.CreatedAt
	}
	if in.State != InstanceRunning {
		in.IP = ""
	}
	return in, nil
}

func vmState(got adapter.Instance) InstanceState {
	switch got.State {
	case adapter.StateAbsent:
		return InstanceAbsent
	case adapter.StateStopping, adapter.StateStopped:
		return InstanceEnded
	case adapter.StateRunning:
		if got.IP != "" {
			return InstanceRunning
		}
	}
	return InstanceProvisioning
}

func credible(got adapter.Instance) error {
	known := map[adapter.State]bool{
		adapter.StateAbsent: true, adapter.StateProvisioning: true, adapter.StateRunning: true,
		adapter.StateStopping: true, adapter.StateStopped: true,
	}
	_, notIP := netip.ParseAddr(got.IP)
	switch {
	case !known[got.State]:
		return fmt.Errorf("unknown state %q", short(string(got.State)))
	case got.State == adapter.StateAbsent && (got.InstanceID != "" || got.IP != ""):
		return fmt.Errorf("an absent instance has no id and no address")
	case got.State == adapter.StateRunning && (got.InstanceID == "" || got.ProviderID == ""):
		return fmt.Errorf("a running instance has an id and a provider id")
	case got.IP != "" && notIP != nil:
		return fmt.Errorf("%q is not an IP address", short(got.IP))
	case len(got.ProviderID) > adapter.MaxProviderIDBytes || len(got.InstanceID) > maxInstanceID || len(got.SpecHash) > maxHash:
		return fmt.Errorf("providerID, instanceID or specHash is too long")
	case got.Port < 0 || got.Port > 65535:
		return fmt.Errorf("port %d", got.Port)
	}
	return nil
}

// carriedInstance is the VM that a status speaks of, for when nobody tells more.
func carriedInstance(s *v1alpha1.ProxyStatus) Instance {
	in := Instance{VM: true, State: InstanceUnknown, ProviderID: s.ProviderID, ID: s.InstanceID, Port: s.Port, SpecHash: s.SpecHash}
	if s.InstanceID != "" && s.IP != "" {
		in.State, in.IP = InstanceRunning, s.IP
	}
	return in
}

// carryVM puts the VM of the status in the place of the one that was not
// observed. Every provider but kubernetes may have one; so may a Proxy whose
// provider is not known, or is of another type by now.
func (o *Observation) carryVM() {
	if o.Proxy.Spec.Mode != v1alpha1.ModeManaged || o.Instance.exists() {
		return
	}
	if o.Provider.outside() || o.namesVM() || o.Provider == nil && o.awaitsVM() {
		o.Instance = carriedInstance(&o.Proxy.Status)
	}
}

// namesVM reports whether the status names an instance that is no Pod.
func (o *Observation) namesVM() bool {
	id := o.Proxy.Status.ProviderID
	return id != "" && id != podProviderID(o.Proxy.Namespace, v1alpha1.InstanceName(o.Proxy.UID))
}

// awaitsVM reports whether the status shows that a VM was asked for which nobody
// has seen yet. Pods leave no such mark.
func (o *Observation) awaitsVM() bool {
	s := &o.Proxy.Status
	return s.ProviderID == "" && s.InstanceID == "" && s.SpecHash != ""
}

// mayBeVM reports whether a VM may have to be got rid of.
func (o *Observation) mayBeVM() bool {
	switch {
	case o.Provider.outside() || o.namesVM():
		return true
	case o.Provider != nil:
		return false
	}
	return (o.Instance.VM || !o.Instance.exists()) && o.Proxy.Status.ProviderID == ""
}

// otherKind reports whether the instance is none that the provider makes: its
// type was changed under its name.
func (o *Observation) otherKind() bool {
	return o.Instance.exists() && o.Instance.VM != o.Provider.outside()
}

func (o *Observation) placement() v1alpha1.Placement {
	if o.Proxy.Spec.Placement == nil {
		return v1alpha1.Placement{}
	}
	return *o.Proxy.Spec.Placement
}

// putRequest says which VM should be.
func (o *Observation) putRequest(hash, replace string) adapter.PutRequest {
	return adapter.PutRequest{
		UID: string(o.Proxy.UID), Namespace: o.Proxy.Namespace, Proxy: o.Proxy.Name,
		SpecHash: hash, Generation: o.Proxy.Generation, Port: o.Proxy.EffectivePort(),
		Placement: o.placement(), UserData: o.CloudInit.Content, Replace: replace,
	}
}

// replaceSoFar is the id of the VM that an earlier answer began to replace, so
// that asking does not stop it; empty when the edit was taken back.
func (o *Observation) replaceSoFar(hash string) string {
	s := &o.Proxy.Status
	if o.previous(v1alpha1.ConditionProvisioned).Reason != v1alpha1.ReasonReplacing || !v1alpha1.SpecHashKnown(s.SpecHash) || s.SpecHash == hash {
		return ""
	}
	return s.InstanceID
}

// latched reports whether this very instance was refused for good: for this
// generation and this hash.
func (o *Observation) latched(hash string) bool {
	p := o.previous(v1alpha1.ConditionProvisioned)
	return o.Provider.outside() && p.Reason == v1alpha1.ReasonPermanentError && p.ObservedGeneration == o.Proxy.Generation &&
		o.Proxy.Status.InstanceID == "" && o.Proxy.Status.SpecHash == hash
}
