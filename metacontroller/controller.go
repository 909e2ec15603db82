package metacontroller

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The CompositeController's type.
const (
	ControllerAPIVersion = "metacontroller.k8s.io/v1alpha1"
	ControllerKind       = "CompositeController"
)

// HookVersion is the only supported hook version.
const HookVersion = "v2"

// UpdateMethod of a child that differs from the hook's. LoadController rejects
// Metacontroller's other methods: they loop or stall on Pods or in namespaces.
type UpdateMethod string

const (
	// OnDelete does not update existing children; the hook replaces a child by
	// omitting it from a response.
	OnDelete UpdateMethod = "OnDelete"
	// InPlace updates children by a three-way merge.
	InPlace UpdateMethod = "InPlace"
)

// Controller is a CompositeController with the fields that we use. They have
// Metacontroller's names and order, so that it is encoded like the controller in
// hook requests.
type Controller struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta has the name, which is a part of the finalizer.
	metav1.ObjectMeta `json:"metadata"`
	// Spec has the resources and the hooks.
	Spec ControllerSpec `json:"spec"`
	// Status is always empty.
	Status struct{} `json:"status"`
}

// ControllerSpec is the spec of a CompositeController.
type ControllerSpec struct {
	// ParentResource is reconciled by the controller.
	ParentResource ParentResource `json:"parentResource"`
	// ChildResources are the kinds of children; each is in every sync request.
	ChildResources []ChildResource `json:"childResources,omitempty"`
	// Hooks to call.
	Hooks ControllerHooks `json:"hooks"`
	// ResyncPeriodSeconds between resyncs of every parent; nil is the cache
	// flush interval of 30 minutes.
	ResyncPeriodSeconds *int32 `json:"resyncPeriodSeconds,omitempty"`
	// GenerateSelector selects children by a generated controller-uid label
	// instead of a selector in the parent's spec.
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
	// IgnoreStatusChanges does not reconcile a parent when only its status
	// changes.
	IgnoreStatusChanges *bool `json:"ignoreStatusChanges,omitempty"`
}

// ChildResource names one kind of children.
type ChildResource struct {
	ResourceRef `json:",inline"`
	// UpdateStrategy for children that differ from the hook's.
	UpdateStrategy UpdateStrategy `json:"updateStrategy"`
}

// UpdateStrategy wraps an UpdateMethod as the manifest does.
type UpdateStrategy struct {
	// Method is OnDelete or InPlace.
	Method UpdateMethod `json:"method"`
	// StatusChecks are for rolling methods; hook requests contain the field.
	StatusChecks struct{} `json:"statusChecks"`
}

// ControllerHooks are the hooks of a CompositeController.
type ControllerHooks struct {
	// Customize returns the rules for related objects; nil means none.
	Customize *Hook `json:"customize,omitempty"`
	// Sync returns the desired children and the status of a parent.
	Sync *Hook `json:"sync,omitempty"`
	// Finalize is called instead of Sync once a parent is being deleted. With it
	// parents have a finalizer.
	Finalize *Hook `json:"finalize,omitempty"`
}

// Hook is one hook.
type Hook struct {
	// Version must be HookVersion; Metacontroller's default is v1.
	Version string `json:"version"`
	// Webhook to call.
	Webhook Webhook `json:"webhook"`
}

// Webhook is the address of a hook.
type Webhook struct {
	// URL to POST to.
	URL string `json:"url"`
	// Timeout of one call; nil means 10 s.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Enabled reports whether an optional boolean is set and true.
func Enabled(b *bool) bool { return b != nil && *b }

// FinalizerName is the finalizer that Metacontroller adds to the parents of c while
// c has a finalize hook.
func (c *Controller) FinalizerName() string {
	return finalizerPrefix + c.Name
}
