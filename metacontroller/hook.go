// Package metacontroller is the types and the codec of Metacontroller's hook API
// v2: requests to customize, sync and finalize hooks, and their responses. The
// codec is strict, because Metacontroller is: v2 fails a sync on any unknown field,
// deletes every child on a body of null, and crashes on a null child.
package metacontroller

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ControllerName is the name of our CompositeController. It must never change: it
// is a part of the finalizer on every Proxy.
const ControllerName = "proxies"

// Finalizer is added to Proxies by Metacontroller while our CompositeController has
// a finalize hook.
const Finalizer = finalizerPrefix + ControllerName

const finalizerPrefix = "metacontroller.io/compositecontroller-"

// Request of a sync or finalize hook. Its objects stay encoded.
type Request struct {
	// Controller is the CompositeController.
	Controller json.RawMessage `json:"controller"`
	// Parent is the Proxy.
	Parent json.RawMessage `json:"parent"`
	// Children are the observed children.
	Children Objects `json:"children"`
	// Related are the objects that the rules of the customize hook select.
	Related Objects `json:"related"`
	// Finalizing is true in finalize requests, even for a parent without a
	// deletion timestamp: a parent that no longer matches the controller's label
	// selector is finalized as well.
	Finalizing bool `json:"finalizing"`
	// Unknown are names of envelope fields that this release ignores, such as
	// those of a newer Metacontroller: at most 16, each cut to 64 bytes.
	Unknown []string `json:"-"`
}

// Objects are the children or related objects of a parent: first by
// "Kind.version" or "Kind.group/version", then by "namespace/name". Every
// configured kind is present, even without objects.
type Objects map[string]map[string]json.RawMessage

// Key is the key of an object within Objects: namespace/name, or the name alone
// for a cluster-scoped object.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Response to a sync or finalize request. Metacontroller reconciles the children
// with it and deletes those that are not listed.
type Response struct {
	// Status replaces the whole status of the parent.
	Status map[string]any `json:"status"`
	// Children are the desired children, never nil.
	Children []*unstructured.Unstructured `json:"children"`
	// ResyncAfterSeconds schedules one more call, unless it is 0.
	ResyncAfterSeconds float64 `json:"resyncAfterSeconds"`
	// Finalized lets Metacontroller remove its finalizer. Finalize only.
	Finalized bool `json:"finalized"`
}

// CustomizeRequest of a customize hook.
type CustomizeRequest struct {
	// Controller is the CompositeController.
	Controller json.RawMessage `json:"controller"`
	// Parent is the Proxy. The response is cached by its UID and generation, so
	// it may depend on the spec only.
	Parent json.RawMessage `json:"parent"`
	// Unknown is as in Request.
	Unknown []string `json:"-"`
}

// CustomizeResponse selects the related objects of sync requests.
type CustomizeResponse struct {
	// RelatedResources may be empty and is never nil.
	RelatedResources []RelatedResourceRule `json:"relatedResources"`
}

// RelatedResourceRule selects related objects by name. Metacontroller also has
// label selectors, which cannot be combined with names.
type RelatedResourceRule struct {
	// APIVersion of the objects, such as v1.
	APIVersion string `json:"apiVersion"`
	// Resource is the plural, such as secrets.
	Resource string `json:"resource"`
	// Namespace of the objects.
	Namespace string `json:"namespace,omitempty"`
	// Names of the objects, at least one.
	Names []string `json:"names"`
}
