package manifests_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

// access is one thing that an account may do, or did. Without a namespace it is
// about all of them; without a name it is about every object.
type access struct {
	namespace, group, resource, name, verb string
}

func (a access) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s.%s %s in %q", a.verb, a.resource, a.group, a.name, a.namespace))
}

// grants are what the manifests grant an account of ours, one by one.
func (all objects) grants(t *testing.T, account string) []access {
	t.Helper()
	var out []access
	for _, o := range all.ofKind("ClusterRoleBinding", "RoleBinding") {
		// The two kinds have the fields that matter here in common.
		binding := as[rbacv1.RoleBinding](t, o)
		if !slices.Contains(binding.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Name: account, Namespace: system}) {
			continue
		}
		for _, rule := range as[rbacv1.ClusterRole](t, all.find(t, binding.RoleRef.Kind, binding.RoleRef.Name)).Rules {
			out = append(out, flatten(o.GetNamespace(), rule)...)
		}
	}
	return out
}

func flatten(namespace string, rule rbacv1.PolicyRule) []access {
	var out []access
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					out = append(out, access{namespace, group, resource, name, verb})
				}
			}
		}
	}
	return out
}

// covers reports whether a grant permits a request.
func (a access) covers(request access) bool {
	return a.group == request.group && a.resource == request.resource && a.verb == request.verb &&
		(a.namespace == "" || a.namespace == request.namespace) && (a.name == "" || a.name == request.name)
}

// parseRequest returns the access that a request to the API server needs; false when it is
// about no resource, such as /version.
func parseRequest(r *http.Request) (access, bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var a access
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		a.group, parts = parts[1], parts[3:]
	default:
		return access{}, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		a.namespace, parts = parts[1], parts[2:]
	}
	a.resource = parts[0]
	if len(parts) > 1 {
		a.name = parts[1]
	}
	if len(parts) > 2 {
		a.resource += "/" + strings.Join(parts[2:], "/")
	}
	a.verb = verbOf(r, a.name)
	return a, true
}

func verbOf(r *http.Request, name string) string {
	switch {
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	case r.Method == http.MethodPatch, r.Method == http.MethodDelete:
		return strings.ToLower(r.Method)
	case slices.Contains([]string{"1", "true"}, r.URL.Query().Get("watch")):
		return "watch"
	case name == "":
		return "list"
	}
	return "get"
}

func TestParseRequest(t *testing.T) {
	for request, want := range map[string]access{
		"GET /api/v1/namespaces/crawl/secrets/vendor":                                  {"crawl", "", "secrets", "vendor", "get"},
		"GET /apis/crawl.example.com/v1alpha1/proxies?limit=500":                       {"", "crawl.example.com", "proxies", "", "list"},
		"GET /apis/crawl.example.com/v1alpha1/namespaces/crawl/proxies?watch=true":     {"crawl", "crawl.example.com", "proxies", "", "watch"},
		"POST /apis/coordination.k8s.io/v1/namespaces/egress-proxies/leases":           {"egress-proxies", "coordination.k8s.io", "leases", "", "create"},
		"PATCH /apis/crawl.example.com/v1alpha1/namespaces/crawl/proxyprobes/a/status": {"crawl", "crawl.example.com", "proxyprobes/status", "a", "patch"},
		"PUT /apis/coordination.k8s.io/v1/namespaces/egress-proxies/leases/cloud-inst": {"egress-proxies", "coordination.k8s.io", "leases", "cloud-inst", "update"},
	} {
		method, target, _ := strings.Cut(request, " ")
		r, err := http.NewRequest(method, "https://host"+target, nil)
		require.NoError(t, err)
		got, ok := parseRequest(r)
		assert.True(t, ok, request)
		assert.Equal(t, want, got, request)
	}
	r, err := http.NewRequest(http.MethodGet, "https://host/version", nil)
	require.NoError(t, err)
	_, ok := parseRequest(r)
	assert.False(t, ok)
}

// assertExact wants every request to have been granted and every grant to have
// been used.
func assertExact(t *testing.T, granted []access, rec *recorder) {
	t.Helper()
	requests, refused := rec.seen()
	assert.Empty(t, refused, "forbidden")
	for _, request := range requests {
		assert.True(t, slices.ContainsFunc(granted, func(g access) bool { return g.covers(request) }), "not granted in the manifests: %s", request)
	}
	for _, grant := range granted {
		// Where the API server streams the first list as well, a watch is all
		// that is asked for; where it does not, client-go falls back on lists.
		used := slices.ContainsFunc(requests, grant.covers)
		if grant.verb == "list" {
			watch := grant
			watch.verb = "watch"
			used = used || slices.Contains(granted, watch) && slices.ContainsFunc(requests, watch.covers)
		}
		assert.True(t, used, "granted and never used: %s", grant)
	}
}

func TestNoWildcards(t *testing.T) {
	for name, all := range renderAll(t) {
		for _, o := range all.ofKind("ClusterRole", "Role") {
			for _, rule := range as[rbacv1.ClusterRole](t, o).Rules {
				assert.NotContains(t, strings.Join(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs), " "), "*", "%s: %s", name, o.GetName())
			}
		}
	}
}

// webhooks decides and does nothing: with Pods alone its account may send Events
// where Proxies are, and no more.
func TestWebhooksMayOnlySendEvents(t *testing.T) {
	for _, name := range overlays {
		assert.ElementsMatch(t, []access{{fleet, "", "events", "", "create"}, {fleet, "", "events", "", "patch"}}, renderAll(t)[name].grants(t, "webhooks"), name)
	}
}
