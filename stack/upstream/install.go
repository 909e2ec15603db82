package upstream

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

//go:embed crds/*.yaml
var crds embed.FS

const fieldManager = "local-stack"

// ControllerResource is where CompositeControllers are.
func ControllerResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "compositecontrollers"}
}

// InstallKinds installs the CRDs of Metacontroller and waits until the API server serves them. It
// is idempotent.
func InstallKinds(ctx context.Context, cfg *rest.Config) error {
	manifests, err := kinds()
	if err != nil {
		return err
	}
	return controlplane.InstallCRDs(ctx, cfg, manifests...)
}

// kinds are the manifests of Metacontroller's kinds. An error means that this
// program was built wrongly.
func kinds() ([][]byte, error) {
	names, err := fs.Glob(crds, "crds/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("embedded CRDs: %w", err)
	}
	var out [][]byte
	for _, name := range names {
		content, err := crds.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("embedded CRDs: %w", err)
		}
		out = append(out, content)
	}
	return out, nil
}

// Apply creates or updates c. Metacontroller picks it up when it runs, or at its start.
func Apply(ctx context.Context, cfg *rest.Config, c *metacontroller.Controller) error {
	object, err := encode(c)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("apply CompositeController: make a client: %w", err)
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := client.Resource(ControllerResource()).Apply(ctx, c.Name, object, options); err != nil {
		return fmt.Errorf("apply CompositeController %s: %w", c.Name, err)
	}
	return nil
}

// encode leaves out the status, which is Metacontroller's.
func encode(c *metacontroller.Controller) (*unstructured.Unstructured, error) {
	content, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode CompositeController %s: %w", c.Name, err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err != nil {
		return nil, fmt.Errorf("encode CompositeController %s: %w", c.Name, err)
	}
	unstructured.RemoveNestedField(object.Object, "status")
	return object, nil
}
