package install_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
)

const (
	accountNamespace = "egress-proxies-metacontroller"
	accountName      = "metacontroller"
	// fleet is a namespace with Proxies.
	fleet = "egress-proxies"
)

// access is one permission of an account.
type access struct {
	namespace, group, resource, subresource, name, verb string
}

func (a access) String() string {
	return fmt.Sprintf("%s %s.%s/%s %q in %q", a.verb, a.resource, a.group, a.subresource, a.name, a.namespace)
}

func each(namespace, group, resource, subresource string, verbs ...string) []access {
	var out []access
	for _, verb := range verbs {
		out = append(out, access{namespace: namespace, group: group, resource: resource, subresource: subresource, verb: verb})
	}
	return out
}

var (
	reads  = []string{"get", "list", "watch"}
	writes = []string{"create", "update", "patch", "delete"}
)

// own are the accesses that Metacontroller needs for any controller. Its watches
// are cluster-wide, hence no namespace.
func own() []access {
	mc, lease := "metacontroller.k8s.io", access{namespace: accountNamespace, group: "coordination.k8s.io", resource: "leases", name: "metacontroller"}
	need := slices.Concat(
		each("", mc, "compositecontrollers", "", reads...),
		each("", mc, "decoratorcontrollers", "", reads...),
		each("", mc, "controllerrevisions", "", append(reads, writes...)...),
		each("", "apiextensions.k8s.io", "customresourcedefinitions", "", reads...),
		each("", "", "namespaces", "", reads...),
		each(fleet, "", "events", "", "create", "patch"),
		each("default", "", "events", "", "create", "patch"), // about the CompositeController
	)
	for _, verb := range []string{"get", "update"} {
		lease.verb = verb
		need = append(need, lease)
	}
	return append(need, access{namespace: accountNamespace, group: lease.group, resource: lease.resource, verb: "create"})
}

// parents, children and related return the accesses for the kinds of a controller.
func parents(r schema.GroupResource) []access {
	return slices.Concat(
		each("", r.Group, r.Resource, "", reads...),
		each(fleet, r.Group, r.Resource, "", "update", "patch"),
		each(fleet, r.Group, r.Resource, "status", "update", "patch"),
		each(fleet, r.Group, r.Resource, "finalizers", "update"),
	)
}

func children(r schema.GroupResource) []access {
	return slices.Concat(each("", r.Group, r.Resource, "", reads...), each(fleet, r.Group, r.Resource, "", writes...))
}

func related(r schema.GroupResource) []access { return each("", r.Group, r.Resource, "", reads...) }

// ofController is everything for the CompositeController in this repository.
func ofController(t *testing.T) []access {
	t.Helper()
	cc, err := metacontroller.LoadController("../compositecontroller.yaml")
	require.NoError(t, err)
	need := parents(groupResource(t, cc.Spec.ParentResource.ResourceRef))
	for _, child := range cc.Spec.ChildResources {
		need = append(need, children(groupResource(t, child.ResourceRef))...)
	}
	return need
}

func groupResource(t *testing.T, ref metacontroller.ResourceRef) schema.GroupResource {
	t.Helper()
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	require.NoError(t, err)
	return gv.WithResource(ref.Resource).GroupResource()
}

// ofCustomize are the accesses for the related objects of a Proxy with a cloud-init
// Secret.
func ofCustomize(t *testing.T, cloudInitSecrets bool) []access {
	t.Helper()
	body, err := os.ReadFile("../testdata/recorded/1a-customize-secret-ref.json")
	require.NoError(t, err)
	limit, err := webhooks.ParseLimit("20%")
	require.NoError(t, err)
	hooks := webhooks.New(webhooks.Options{
		Providers: config.Providers{}, CloudInitSecrets: cloudInitSecrets, MaxReplacing: limit,
		Clock: testclock.NewFakePassiveClock(start()), Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/hooks/customize", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	hooks.Handler(nil).ServeHTTP(rec, req)
	require.Equal(t, http.StatusOK, rec.Code, rec.Body.String())
	var answer metacontroller.CustomizeResponse
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &answer))
	var need []access
	for _, rule := range answer.RelatedResources {
		need = append(need, related(groupResource(t, metacontroller.ResourceRef{APIVersion: rule.APIVersion, Resource: rule.Resource}))...)
	}
	return need
}

// token are the accesses for the hook's token: Metacontroller lists and watches
// Secrets and gets none.
func token() []access { return each("", "", "secrets", "", "list", "watch") }

// forbidden are accesses that no variant may grant.
func forbidden() []access {
	return slices.Concat(
		each(fleet, "crawl.example.com", "proxies", "", "create", "delete", "deletecollection"),
		each(fleet, "", "pods", "exec", "create", "get"),
		each(fleet, "", "pods", "log", "get"),
		each(fleet, "", "secrets", "", writes...),
		each(fleet, "", "configmaps", "", "get", "create"),
		each("", "", "nodes", "", "list"),
		each("", "", "namespaces", "", writes...),
		each("", "metacontroller.k8s.io", "compositecontrollers", "", writes...),
		each("", "apiextensions.k8s.io", "customresourcedefinitions", "", writes...),
		each("", "rbac.authorization.k8s.io", "clusterroles", "", "get", "create", "bind", "escalate"),
		each(fleet, "", "serviceaccounts", "token", "create"),
		each(fleet, "apps", "deployments", "", "get", "create"),
		each("kube-system", "coordination.k8s.io", "leases", "", "get", "create"),
		[]access{{namespace: accountNamespace, group: "coordination.k8s.io", resource: "leases", name: "other", verb: "update"}},
	)
}

// needs are the accesses that each variant must grant.
func needs(t *testing.T, name string) []access {
	t.Helper()
	v := variants()[name]
	need := append(own(), ofController(t)...)
	if v.resource == "" && !slices.Contains(v.components, "no-hook-token") {
		need = append(need, token()...)
	}
	return append(need, ofCustomize(t, slices.Contains(v.components, "cloud-init-secrets"))...)
}
