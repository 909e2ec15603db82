// Package metacontroller speaks Metacontroller's hook API v2: the requests that
// it sends to customize, sync and finalize hooks, and the answers that it
// accepts. The codec is strict in both directions, because the other side is:
// v2 fails a sync on any unknown field, deletes every child on a body of null,
// and crashes on a null child.
package metacontroller

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ControllerName is the name of our CompositeController. It must never change:
// the finalizer on every Proxy embeds it.
const ControllerName = "proxies"

// Finalizer is what Metacontroller puts on a parent while our finalize hook is
// configured.
const Finalizer = finalizerPrefix + ControllerName

const finalizerPrefix = "metacontroller.io/compositecontroller-"

// Request is what the sync and finalize hooks receive. Objects stay encoded
// until somebody needs them.
type Request struct {
	// Controller is the CompositeController.
	Controller json.RawMessage `json:"controller"`
	// Parent is the Proxy.
	Parent json.RawMessage `json:"parent"`
	// Children are the observed children.
	Children Objects `json:"children"`
	// Related are the objects that the customize hook asked for.
	Related Objects `json:"related"`
	// Finalizing is true in finalize requests. It, not the parent's deletion
	// timestamp, says that the parent is on its way out: a parent that no
	// longer matches the controller's label selector is finalized as well.
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

// Response is the answer to a sync or finalize request. Metacontroller makes
// the children so: it deletes those that are not listed.
type Response struct {
	// Status replaces the parent's status as a whole.
	Status map[string]any `json:"status"`
	// Children are the wanted children, never nil.
	Children []*unstructured.Unstructured `json:"children"`
	// ResyncAfterSeconds asks for one more call; 0 asks for none.
	ResyncAfterSeconds float64 `json:"resyncAfterSeconds"`
	// Finalized lets Metacontroller remove its finalizer. Finalize only.
	Finalized bool `json:"finalized"`
}

// CustomizeRequest is what the customize hook receives.
type CustomizeRequest struct {
	// Controller is the CompositeController.
	Controller json.RawMessage `json:"controller"`
	// Parent is the Proxy. The answer is cached by its UID and generation, so
	// only its spec may matter.
	Parent json.RawMessage `json:"parent"`
	// Unknown is as in Request.
	Unknown []string `json:"-"`
}

// CustomizeResponse names the objects that sync requests shall carry as
// related.
type CustomizeResponse struct {
	// RelatedResources may be empty and is never nil.
	RelatedResources []RelatedResourceRule `json:"relatedResources"`
}

// RelatedResourceRule selects related objects by name. Metacontroller also
// knows label selectors, which cannot be combined with names.
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
