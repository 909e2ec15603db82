package controlplanetest

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Kustomize renders a folder with a kustomization as `kubectl apply -k` does. A
// warning fails the test as an error does.
func Kustomize(t testing.TB, dir string) []*unstructured.Unstructured {
	t.Helper()
	cmd := exec.Command(Assets(t).Kubectl, "kustomize", dir)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil || errOut.Len() > 0 {
		t.Fatalf("kubectl kustomize %s: %v\n%s", dir, err, errOut.String())
	}
	return ParseManifests(t, out.Bytes())
}

// EncodeManifests is ParseManifests the other way.
func EncodeManifests(t testing.TB, objects []*unstructured.Unstructured) string {
	t.Helper()
	docs := make([]string, 0, len(objects))
	for _, o := range objects {
		doc, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, string(doc))
	}
	return strings.Join(docs, "---\n")
}

// ParseManifests returns the objects of a YAML stream.
func ParseManifests(t testing.TB, manifests []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		var content map[string]any
		err := decoder.Decode(&content)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(content) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}
}

// Convert returns a typed object. A field that the type does not have fails the
// test.
func Convert[T any](t testing.TB, object *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, out, true); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return out
}
