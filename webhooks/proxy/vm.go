package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	// maxInstanceID and maxHash are the maximum lengths of status fields. With a longer
	// value the API server would refuse the whole status.
	maxInstanceID, maxHash = 128, 63
	// maxText is the most bytes of foreign text in an Event or a condition.
	maxText = 1000
)

// VMInstance maps a reply of the cloud adapter. An inconsistent reply is an error
// that unwraps to adapter.ErrUnavailable: the state of the VM is then unknown.
func VMInstance(got adapter.Instance) (Instance, error) {
	if err := validate(got); err != nil {
		return Instance{}, fmt.Errorf("%w: inconsistent reply: %w", adapter.ErrUnavailable, err)
	}
	in := Instance{
		VM: true, State: vmStates[got.State], Terminating: got.State == adapter.StateStopping,
		ProviderID: got.ProviderID, ID: got.InstanceID, IP: got.IP, Port: got.Port, SpecHash: got.SpecHash,
	}
	if got.CreatedAt != nil {
		in.CreatedAt = *got.CreatedAt
	}
	if in.State == InstanceRunning && in.IP == "" {
		in.State = InstanceProvisioning
	}
	if in.State != InstanceRunning {
		in.IP = ""
	}
	return in, nil
}

var vmStates = map[adapter.State]InstanceState{
	adapter.StateAbsent:       InstanceAbsent,
	adapter.StateProvisioning: InstanceProvisioning,
	adapter.StateRunning:      InstanceRunning,
	adapter.StateStopping:     InstanceEnded,
	adapter.StateStopped:      InstanceEnded,
}

func validate(got adapter.Instance) error {
	_, notIP := netip.ParseAddr(got.IP)
	switch {
	case vmStates[got.State] == "":
		return fmt.Errorf("unknown state %q", Truncate(string(got.State)))
	case got.State == adapter.StateAbsent && (got.InstanceID != "" || got.IP != ""):
		return errors.New("an absent instance has no id and no address")
	case got.State == adapter.StateRunning && (got.InstanceID == "" || got.ProviderID == ""):
		return errors.New("a running instance has an id and a provider id")
	case got.IP != "" && notIP != nil:
		return fmt.Errorf("%q is not an IP address", Truncate(got.IP))
	case len(got.ProviderID) > adapter.MaxProviderIDBytes || len(got.InstanceID) > maxInstanceID || len(got.SpecHash) > maxHash:
		return errors.New("providerID, instanceID or specHash is too long")
	case got.Port < 0 || got.Port > 65535:
		return fmt.Errorf("port %d", got.Port)
	}
	return nil
}

// Truncate shortens text from outside to what fits a message.
func Truncate(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + " ..."
	}
	return text
}

// VMFromStatus is the VM that a status names. It stands in for the observed one
// while the adapter reports nothing.
func VMFromStatus(s *v1alpha1.ProxyStatus) Instance {
	in := Instance{VM: true, State: InstanceUnknown, ProviderID: s.ProviderID, ID: s.InstanceID, Port: s.Port, SpecHash: s.SpecHash}
	if s.InstanceID != "" && s.IP != "" {
		in.State, in.IP = InstanceRunning, s.IP
	}
	return in
}

// ExpectsVM reports whether the status's VM stands in for an instance that is no
// observed child. Every provider but those of type kubernetes may have one; so
// may a Proxy whose provider is unknown, or has changed its type.
func (o *Observation) ExpectsVM() bool {
	return o.Proxy.Spec.Mode == v1alpha1.ModeManaged && !o.Instance.Exists() &&
		(o.Provider.IsCloud() || o.NamesVM() || o.Provider == nil && o.RequestedVM())
}

// NamesVM reports whether the status names an instance that is no Pod.
func (o *Observation) NamesVM() bool {
	id := o.Proxy.Status.ProviderID
	return id != "" && id != podProviderID(o.Proxy.Namespace, v1alpha1.InstanceName(o.Proxy.UID))
}

// RequestedVM reports whether the status marks a VM that was requested and not
// observed yet. Pods leave no such mark.
func (o *Observation) RequestedVM() bool {
	s := &o.Proxy.Status
	return s.ProviderID == "" && s.InstanceID == "" && s.SpecHash != ""
}

// NeedsVMDeletion reports whether there may be a VM to delete. A Pod that is still
// observed goes first.
func (o *Observation) NeedsVMDeletion() bool {
	switch {
	case o.Instance.Exists() && !o.Instance.VM:
		return false
	case o.Provider.IsCloud() || o.NamesVM():
		return true
	}
	return o.Provider == nil && o.Proxy.Status.ProviderID == ""
}

// PutRequest describes the wanted VM. replace is the id of the VM to be replaced,
// empty for none.
func (o *Observation) PutRequest(replace string) adapter.PutRequest {
	return adapter.PutRequest{
		UID: string(o.Proxy.UID), Namespace: o.Proxy.Namespace, Proxy: o.Proxy.Name,
		SpecHash: o.Wanted.Hash, Generation: o.Proxy.Generation, Port: o.Proxy.EffectivePort(),
		Placement: o.placement(), UserData: o.CloudInit.Content, Replace: replace,
	}
}

// ReplaceBegun is the id of the VM whose replacement an earlier answer began. A
// request without it would stop that replacement. It is empty when the edit was
// reverted.
func (o *Observation) ReplaceBegun() string {
	s := &o.Proxy.Status
	if o.previous(v1alpha1.ConditionProvisioned).Reason != v1alpha1.ReasonReplacing || !v1alpha1.SpecHashKnown(s.SpecHash) || s.SpecHash == o.Wanted.Hash {
		return ""
	}
	return s.InstanceID
}

// Latched reports whether the cloud refused this very instance permanently: for
// this generation and this hash. The adapter then receives no further request.
func (o *Observation) Latched() bool {
	p := o.previous(v1alpha1.ConditionProvisioned)
	return o.Provider.IsCloud() && p.Reason == v1alpha1.ReasonPermanentError && p.ObservedGeneration == o.Proxy.Generation &&
		o.Proxy.Status.InstanceID == "" && o.Proxy.Status.SpecHash == o.Wanted.Hash
}
