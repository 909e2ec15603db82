package standin

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
)

// lastAppliedAnnotation holds the child of the response by which it was last
// written. It is Metacontroller's, so that a cluster can switch between it and
// the stand-in.
const lastAppliedAnnotation = "metacontroller.k8s.io/last-applied-configuration"

// systemFields of metadata are set by the API server. A hook's values for them
// are ignored: they would differ at every reconcile.
var systemFields = []string{
	"selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
	"deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
}

// applied returns observed with desired applied to it.
func applied(observed, desired *object) (*object, error) {
	last, err := lastApplied(observed)
	if err != nil {
		return nil, err
	}
	desired = withoutLastApplied(desired)
	out := &object{Object: merge(observed.Object, last, desired.Object)}
	for _, field := range systemFields {
		if err := restore(out, observed, "metadata", field); err != nil {
			return nil, err
		}
	}
	if err := restore(out, observed, "status"); err != nil {
		return nil, err
	}
	return out, setLastApplied(out, desired)
}

// restore copies a field of original to obj, or removes it from obj.
func restore(obj, original *object, path ...string) error {
	value, found, err := unstructured.NestedFieldCopy(original.Object, path...)
	if err != nil {
		return fmt.Errorf("read %v of %s: %w", path, describe(original), err)
	}
	if !found {
		unstructured.RemoveNestedField(obj.Object, path...)
		return nil
	}
	if err := unstructured.SetNestedField(obj.Object, value, path...); err != nil {
		return fmt.Errorf("restore %v of %s: %w", path, describe(original), err)
	}
	return nil
}

func lastApplied(obj *object) (map[string]any, error) {
	text := obj.GetAnnotations()[lastAppliedAnnotation]
	if text == "" {
		return nil, nil
	}
	var last map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &last); err != nil {
		return nil, fmt.Errorf("annotation %s of %s: %w", lastAppliedAnnotation, describe(obj), err)
	}
	return last, nil
}

// setLastApplied records desired in the annotation of obj.
func setLastApplied(obj, desired *object) error {
	text, err := json.Marshal(desired.Object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", describe(desired), err)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[lastAppliedAnnotation] = string(text)
	obj.SetAnnotations(annotations)
	return nil
}

func withoutLastApplied(obj *object) *object {
	annotations := obj.GetAnnotations()
	if _, has := annotations[lastAppliedAnnotation]; !has {
		return obj
	}
	out := obj.DeepCopy()
	delete(annotations, lastAppliedAnnotation)
	out.SetAnnotations(annotations)
	return out
}
