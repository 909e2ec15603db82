package metacontroller

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The CompositeController's type, as manifests spell it.
const (
	ControllerAPIVersion = "metacontroller.k8s.io/v1alpha1"
	ControllerKind       = "CompositeController"
)

// HookVersion is the only hook version that this package speaks.
const HookVersion = "v2"

// UpdateMethod says what happens to a child that differs from what the hook
// wants. Metacontroller knows more methods; the others loop or stall on Pods or
// in namespaces, and LoadController refuses them.
type UpdateMethod string

const (
	// OnDelete leaves existing children alone; the hook replaces them by
	// leaving them out of an answer.
	OnDelete UpdateMethod = "OnDelete"
	// InPlace updates children by a three-way merge.
	InPlace UpdateMethod = "InPlace"
)

// Controller is a CompositeController, as far as we use that type: its fields
// have Metacontroller's names and order, so that it encodes as the controller
// in hook requests does.
type Controller struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta: its name is in the finalizer.
	metav1.ObjectMeta `json:"metadata"`
	// Spec says what to watch and whom to call.
	Spec ControllerSpec `json:"spec"`
	// Status is always empty.
	Status struct{} `json:"status"`
}

// ControllerSpec is the spec of a CompositeController.
type ControllerSpec struct {
	// ParentResource is what the controller is for.
	ParentResource ParentResource `json:"parentResource"`
	// ChildResources are what it makes; each is in every sync request.
	ChildResources []ChildResource `json:"childResources,omitempty"`
	// Hooks to call.
	Hooks ControllerHooks `json:"hooks"`
	// ResyncPeriodSeconds between unprompted syncs of every parent; nil leaves
	// it to Metacontroller's cache flush of 30 minutes.
	ResyncPeriodSeconds *int32 `json:"resyncPeriodSeconds,omitempty"`
	// GenerateSelector gives children a controller-uid label and selects them
	// by it, instead of by a selector in the parent's spec.
	GenerateSelector *bool `json:"generateSelector,omitempty"`
}

// ResourceRef names a resource.
type ResourceRef struct {
	// APIVersion, such as v1 or crawl.example.com/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Resource is the plural, such as pods.
	Resource string `json:"resource"`
}

// ParentResource names the parents.
type ParentResource struct {
	ResourceRef `json:",inline"`
	// IgnoreStatusChanges leaves alone a parent of which only the status
	// changed.
	IgnoreStatusChanges *bool `json:"ignoreStatusChanges,omitempty"`
}

// ChildResource names one kind of children.
type ChildResource struct {
	ResourceRef `json:",inline"`
	// UpdateStrategy says what to do with children that differ.
	UpdateStrategy UpdateStrategy `json:"updateStrategy"`
}

// UpdateStrategy wraps an UpdateMethod as the manifest does.
type UpdateStrategy struct {
	// Method is OnDelete or InPlace.
	Method UpdateMethod `json:"method"`
	// StatusChecks are for rolling methods; it is here since requests carry it.
	StatusChecks struct{} `json:"statusChecks"`
}

// ControllerHooks are the hooks of a CompositeController.
type ControllerHooks struct {
	// Customize says which related objects a parent wants; nil relates none.
	Customize *Hook `json:"customize,omitempty"`
	// Sync says what children a parent wants.
	Sync *Hook `json:"sync,omitempty"`
	// Finalize replaces Sync once a parent is deleted; when it is set, parents
	// have a finalizer.
	Finalize *Hook `json:"finalize,omitempty"`
}

// Hook is one hook.
type Hook struct {
	// Version must be HookVersion; without it Metacontroller takes v1.
	Version string `json:"version"`
	// Webhook to call.
	Webhook Webhook `json:"webhook"`
}

// Webhook is the address of a hook.
type Webhook struct {
	// URL to POST to.
	URL string `json:"url"`
	// Timeout of the whole exchange; nil means 10 s.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Enabled reports whether an optional switch is on.
func Enabled(b *bool) bool { return b != nil && *b }

// FinalizerName is the finalizer that Metacontroller gives to the parents of c
// while c has a finalize hook.
func (c *Controller) FinalizerName() string {
	return finalizerPrefix + c.Name
}
