package standin

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
)

// lastAppliedAnnotation holds what the hook wanted when a child was last
// written. It is Metacontroller's own, so that a cluster can move between it
// and this engine.
const lastAppliedAnnotation = "metacontroller.k8s.io/last-applied-configuration"

// systemFields of metadata are the API server's; what a hook says about them is
// ignored, lest it differ for ever.
func systemFields() []string {
	return []string{
		"selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
	}
}

// applied returns what observed becomes when desired is applied to it.
func applied(observed, desired *object) (*object, error) {
	last, err := lastApplied(observed)
	if err != nil {
		return nil, err
	}
	desired = withoutLastApplied(desired)
	out := &object{Object: merge(observed.Object, last, desired.Object)}
	for _, field := range systemFields() {
		if err := restore(out, observed, "metadata", field); err != nil {
			return nil, err
		}
	}
	if err := restore(out, observed, "status"); err != nil {
		return nil, err
	}
	return out, setLastApplied(out, desired)
}

// restore makes a field of obj what it is in original, or removes it.
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

// setLastApplied records in obj that desired was applied.
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
