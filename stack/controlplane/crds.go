package controlplane

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

const (
	fieldManager = "local-stack"
	crdTimeout   = time.Minute // bounds how long new CRDs may take to be served
)

// InstallCRDs applies CustomResourceDefinitions, each one YAML or JSON document, and waits until
// their objects can be listed. It is idempotent.
func InstallCRDs(ctx context.Context, cfg *rest.Config, manifests ...[]byte) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("install CRDs: make a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	var served []schema.GroupVersionResource
	for _, manifest := range manifests {
		crd, resources, err := readCRD(manifest)
		if err != nil {
			return fmt.Errorf("install CRDs: %w", err)
		}
		options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
		if _, err := client.Resource(crdResource()).Apply(ctx, crd.GetName(), crd, options); err != nil {
			return fmt.Errorf("install CRD %s: %w", crd.GetName(), err)
		}
		served = append(served, resources...)
	}
	for _, resource := range served {
		if err := supervise.Until(ctx, readyPoll, nil, func(ctx context.Context) error {
			_, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		}); err != nil {
			return fmt.Errorf("install CRDs: wait until %s are served: %w; last answer: %w", resource.Resource, ctx.Err(), err)
		}
	}
	return nil
}

func crdResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// readCRD returns the object and the resources that it defines and serves.
func readCRD(manifest []byte) (*unstructured.Unstructured, []schema.GroupVersionResource, error) {
	var content map[string]any
	if err := yaml.Unmarshal(manifest, &content); err != nil {
		return nil, nil, fmt.Errorf("read a manifest: %w", err)
	}
	crd := &unstructured.Unstructured{Object: content}
	if crd.GetKind() != "CustomResourceDefinition" {
		return nil, nil, fmt.Errorf("the manifest of %s %q is not one of a CustomResourceDefinition", crd.GetKind(), crd.GetName())
	}
	group, _, _ := unstructured.NestedString(content, "spec", "group")
	plural, _, _ := unstructured.NestedString(content, "spec", "names", "plural")
	versions, _, err := unstructured.NestedSlice(content, "spec", "versions")
	if err != nil {
		return nil, nil, fmt.Errorf("CRD %s: %w", crd.GetName(), err)
	}
	var resources []schema.GroupVersionResource
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok && version["served"] == true {
			name, _ := version["name"].(string)
			resources = append(resources, schema.GroupVersionResource{Group: group, Version: name, Resource: plural})
		}
	}
	return crd, resources, nil
}
