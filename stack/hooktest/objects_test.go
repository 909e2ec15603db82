package hooktest

import (
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Managed is a Proxy of that provider.
func Managed(name, provider string) *v1alpha1.Proxy {
	return &v1alpha1.Proxy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec:       v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: provider},
	}
}

// WithSecret makes p take its cloud-init from a Secret.
func WithSecret(p *v1alpha1.Proxy, secret, key string) *v1alpha1.Proxy {
	p.Spec.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: secret, Key: key}}
	return p
}

// CreateProxies creates all Proxies concurrently.
func (l *Lab) CreateProxies(proxies ...*v1alpha1.Proxy) {
	l.t.Helper()
	var creators errgroup.Group
	creators.SetLimit(workers)
	for _, p := range proxies {
		creators.Go(func() error { return l.createProxy(p) })
	}
	if err := creators.Wait(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *Lab) createProxy(p *v1alpha1.Proxy) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return fmt.Errorf("encode proxy %s: %w", p.Name, err)
	}
	delete(content, "status")
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if _, err := l.In(v1alpha1.ProxyResource()).Create(l.t.Context(), &unstructured.Unstructured{Object: content}, options); err != nil {
		return fmt.Errorf("create proxy %s: %w", p.Name, err)
	}
	return nil
}

// CreateSecret creates a Secret with user data, labelled for cloud-init or not.
func (l *Lab) CreateSecret(name, key, value string, labelled bool) {
	l.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{key: value}}
	if labelled {
		secret.Labels = map[string]string{v1alpha1.LabelCloudInit: v1alpha1.ValueTrue}
	}
	if _, err := l.core.CoreV1().Secrets(Namespace).Create(l.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		l.t.Fatalf("create secret %s: %v", name, err)
	}
}

// Patch merges patch into an object.
func (l *Lab) Patch(gvr schema.GroupVersionResource, name, patch string, subresources ...string) {
	l.t.Helper()
	if _, err := l.In(gvr).Patch(l.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		l.t.Fatalf("patch %s %s: %v", gvr.Resource, name, err)
	}
}

// Proxy returns a Proxy, nil when there is none.
func (l *Lab) Proxy(name string) *v1alpha1.Proxy {
	l.t.Helper()
	obj, err := l.In(v1alpha1.ProxyResource()).Get(l.t.Context(), name, metav1.GetOptions{})
	if err := ignoreGone(err); err != nil {
		l.t.Fatalf("get proxy %s: %v", name, err)
	}
	if err != nil {
		return nil
	}
	return toProxy(l.t, obj)
}

// Proxies returns all Proxies, by name.
func (l *Lab) Proxies() map[string]*v1alpha1.Proxy {
	l.t.Helper()
	list, err := l.In(v1alpha1.ProxyResource()).List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatalf("list proxies: %v", err)
	}
	out := map[string]*v1alpha1.Proxy{}
	for i := range list.Items {
		p := toProxy(l.t, &list.Items[i])
		out[p.Name] = p
	}
	return out
}

func toProxy(t interface{ Fatal(...any) }, obj *unstructured.Unstructured) *v1alpha1.Proxy {
	p := &v1alpha1.Proxy{}
	if err := v1alpha1.FromUnstructured(obj.Object, p); err != nil {
		t.Fatal(err)
	}
	return p
}
