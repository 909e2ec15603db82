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
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
)

// grants are the rules that our account has, by namespace; "" is everywhere.
func grants(t *testing.T, objects []*unstructured.Unstructured) map[string][]rbacv1.PolicyRule {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	ours := func(subjects []rbacv1.Subject) bool {
		return slices.Contains(subjects, rbacv1.Subject{Kind: "ServiceAccount", Name: accountName, Namespace: accountNamespace})
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "ClusterRoleBinding":
			b := controlplanetest.Convert[rbacv1.ClusterRoleBinding](t, o)
			require.True(t, ours(b.Subjects), b.Name)
			rules[""] = append(rules[""], controlplanetest.Convert[rbacv1.ClusterRole](t, find(t, objects, "ClusterRole", b.RoleRef.Name)).Rules...)
		case "RoleBinding":
			b := controlplanetest.Convert[rbacv1.RoleBinding](t, o)
			require.True(t, ours(b.Subjects), b.Name)
			if b.RoleRef.Kind == "Role" {
				rules[b.Namespace] = append(rules[b.Namespace], controlplanetest.Convert[rbacv1.Role](t, find(t, objects, "Role", b.RoleRef.Name)).Rules...)
				continue
			}
			rules[b.Namespace] = append(rules[b.Namespace], controlplanetest.Convert[rbacv1.ClusterRole](t, find(t, objects, "ClusterRole", b.RoleRef.Name)).Rules...)
		}
	}
	return rules
}

// allows evaluates rules as RBAC does, without wildcards: there are none.
func allows(rules map[string][]rbacv1.PolicyRule, a access) bool {
	resource := a.resource
	if a.subresource != "" {
		resource += "/" + a.subresource
	}
	candidates := rules[""]
	if a.namespace != "" {
		candidates = slices.Concat(candidates, rules[a.namespace])
	}
	return slices.ContainsFunc(candidates, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, a.group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, a.verb) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.name))
	})
}

// Without the rights to one kind Metacontroller retries for ever without an Event,
// so every kind of the CompositeController and of the customize hook is checked.
func TestRightsCoverWhatTheHooksName(t *testing.T) {
	for name, v := range variants() {
		t.Run(name, func(t *testing.T) {
			rules := grants(t, render(t, v))
			for _, a := range needs(t, name) {
				assert.True(t, allows(rules, a), "missing: %s", a)
			}
			for _, a := range forbidden() {
				assert.False(t, allows(rules, a), "too much: %s", a)
			}
		})
	}
}

func TestNoWildcards(t *testing.T) {
	for name, v := range variants() {
		for namespace, rules := range grants(t, render(t, v)) {
			for _, rule := range rules {
				assert.NotContains(t, strings.Join(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs), " "), "*", "%s %s", name, namespace)
			}
		}
	}
}

// Only variants with a component that documents it can read Secrets.
func TestSecretsOnlyByComponent(t *testing.T) {
	for name, want := range map[string][]string{
		"base": nil, "no-hook-token": nil, "least": nil,
		"whole": {"list", "watch"}, "namespaced-writes": {"list", "watch"}, "cert-manager": {"list", "watch"},
		"cloud-init-secrets": {"get", "list", "watch"}, "everything": {"get", "list", "watch"},
	} {
		rules := grants(t, render(t, variants()[name]))
		var got []string
		for _, verb := range slices.Concat(reads, writes) {
			if allows(rules, access{namespace: fleet, resource: "secrets", verb: verb}) {
				got = append(got, verb)
			}
		}
		assert.Equal(t, want, got, name)
	}
	for _, component := range []string{"hook-token", "cloud-init-secrets"} {
		content, err := os.ReadFile("components/" + component + "/rbac.yaml")
		require.NoError(t, err)
		assert.Contains(t, string(content), "WHAT THIS MEANS", component)
	}
}

func TestNamespacedWrites(t *testing.T) {
	rules := grants(t, render(t, variants()["namespaced-writes"]))
	for _, a := range ofController(t) {
		elsewhere := a
		elsewhere.namespace = "kube-system"
		isRead := slices.Contains(reads, a.verb)
		assert.True(t, allows(rules, a), a.String())
		assert.Equal(t, isRead, allows(rules, elsewhere), elsewhere.String())
	}
}

// The test above needs a customize hook that returns rules.
func TestCustomizeNamesSecretsOnlyWhenAsked(t *testing.T) {
	assert.Empty(t, ofCustomize(t, false))
	assert.Equal(t, each("", "", "secrets", "", reads...), ofCustomize(t, true))
}

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
		Providers: webhooks.Providers{}, CloudInitSecrets: cloudInitSecrets, MaxReplacing: limit,
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
