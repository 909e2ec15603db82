package webhooks

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// InstanceAction is what should become of the instance.
type InstanceAction string

const (
	// MakeInstance: it should exist as the spec wants it. One that exists is
	// left as it is.
	MakeInstance InstanceAction = "Make"
	// KeepInstance: one that exists is left as it is; none is made.
	KeepInstance InstanceAction = "Keep"
	// RemoveInstance: there should be none.
	RemoveInstance InstanceAction = "Remove"
)

// Decision is what a hook answers, before it is put into children.
type Decision struct {
	// Status of the Proxy.
	Status v1alpha1.ProxyStatus
	// Instance says what should become of the Pod or VM.
	Instance InstanceAction
	// SpecHash is the wanted hash, for an instance that is made now.
	SpecHash string
	// Replace is the id of the VM that the cloud adapter shall get rid of. A Pod
	// is left out of the children instead.
	Replace string
	// Probe is the wanted ProxyProbe's spec, nil for none.
	Probe *v1alpha1.ProxyProbeSpec
	// KeepStrays: observed children of unknown making are listed again.
	KeepStrays bool
	// ResyncAfter asks for another look; 0 asks for none.
	ResyncAfter time.Duration
	// Finalized: nothing of the Proxy is left.
	Finalized bool
}
