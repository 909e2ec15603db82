package standin_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/hooktest"
)

// versions are the identities and resource versions of objects, by resource and
// name.
type versions map[string]string

func (v versions) add(gvr schema.GroupVersionResource, obj metav1.Object) {
	v[gvr.Resource+"/"+obj.GetName()] = string(obj.GetUID()) + " " + obj.GetResourceVersion()
}

func (v versions) String() string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		lines = append(lines, key+" "+v[key])
	}
	return strings.Join(lines, "\n")
}

// sameButParent reports whether all objects but the parent, which every request
// has, are the same ones in the same version. The parent changes with each
// answer.
func (v versions) sameButParent(other versions) bool {
	parent := v1alpha1.ProxyResource().Resource + "/"
	for _, pair := range [][2]versions{{v, other}, {other, v}} {
		for key, version := range pair[0] {
			if !strings.HasPrefix(key, parent) && pair[1][key] != version {
				return false
			}
		}
	}
	return true
}

// shownBy are the objects in a request.
func shownBy(body []byte) (versions, error) {
	var req metacontroller.Request
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	shown := versions{}
	objects := map[string]schema.GroupVersionResource{
		"Pod.v1": hooktest.PodResource(), "Secret.v1": hooktest.SecretResource(),
		"ProxyProbe.crawl.example.com/v1alpha1": v1alpha1.ProxyProbeResource(),
	}
	add := func(gvr schema.GroupVersionResource, raw json.RawMessage) error {
		var obj unstructured.Unstructured
		if err := json.Unmarshal(raw, &obj.Object); err != nil {
			return err
		}
		shown.add(gvr, &obj)
		return nil
	}
	if err := add(v1alpha1.ProxyResource(), req.Parent); err != nil {
		return nil, err
	}
	for kind, gvr := range objects {
		for _, group := range []metacontroller.Objects{req.Children, req.Related} {
			for _, raw := range group[kind] {
				if err := add(gvr, raw); err != nil {
					return nil, err
				}
			}
		}
	}
	return shown, nil
}

// live is what a request should show that shows the same Proxy: that Proxy, its
// children, and the Secrets that the request shows.
func (r *recorder) live(ctx context.Context, shown versions, hook string) versions {
	live := versions{}
	for key := range shown {
		resource, name, _ := strings.Cut(key, "/")
		gvr := v1alpha1.ProxyResource()
		switch resource {
		case hooktest.SecretResource().Resource:
			gvr = hooktest.SecretResource()
		case gvr.Resource:
		default:
			continue
		}
		obj, err := r.lab.In(gvr).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || ctx.Err() != nil {
			continue
		}
		if err != nil {
			r.t.Errorf("read %s: %v", key, err)
			continue
		}
		live.add(gvr, obj)
		if gvr == v1alpha1.ProxyResource() && hook != metacontroller.HookCustomize {
			r.addChildren(ctx, live, obj)
		}
	}
	return live
}

func (r *recorder) addChildren(ctx context.Context, live versions, parent metav1.Object) {
	for _, gvr := range []schema.GroupVersionResource{hooktest.PodResource(), v1alpha1.ProxyProbeResource()} {
		list, err := r.lab.In(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			if ctx.Err() == nil {
				r.t.Errorf("list %s: %v", gvr.Resource, err)
			}
			return
		}
		for _, obj := range list.Items {
			if metav1.IsControlledBy(&obj, parent) {
				live.add(gvr, &obj)
			}
		}
	}
}
