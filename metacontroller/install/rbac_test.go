package install_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
