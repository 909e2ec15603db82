package install_test

import (
	"context"
	"strings"
	"testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const accountUser = "system:serviceaccount:" + accountNamespace + ":" + accountName

// The API server accepts every variant with strict field validation and without
// warnings, such as those of Pod Security.
func TestServerAccepts(t *testing.T) {
	c := newCluster(t)
	for name, v := range variants() {
		t.Run(name, func(t *testing.T) {
			manifests := controlplanetest.EncodeManifests(t, render(t, v))
			out, errOut, err := c.Run(manifests, c.Kubectl, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
			require.NoError(t, err, errOut)
			require.NotContains(t, errOut, "would violate")
			require.NotContains(t, errOut, "unknown field")
			assert.Equal(t, strings.Count(manifests, "\nkind: "), strings.Count(out, "(server dry run)"), out)
		})
	}
}

func TestServerRefusesAnUnknownField(t *testing.T) {
	c := newCluster(t)
	manifests := strings.Replace(controlplanetest.EncodeManifests(t, render(t, variants()["base"])), "replicas: 2", "replica: 2", 1)
	_, errOut, err := c.Run(manifests, c.Kubectl, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	require.Error(t, err, "the test above could not fail")
	require.Contains(t, errOut, `unknown field "spec.replica"`)
}

// The Deployment's Pods are admitted under the restricted profile.
func TestPodSecurity(t *testing.T) {
	c := newCluster(t)
	c.install(t, variants()["base"])
	template := deployment(t).Spec.Template
	pods := c.Typed.CoreV1().Pods(accountNamespace)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "trial", Labels: template.Labels}, Spec: template.Spec}
	_, err := pods.Create(t.Context(), pod, dryRun)
	require.NoError(t, err)

	loose := pod.DeepCopy()
	loose.Spec.SecurityContext.SeccompProfile = nil
	_, err = pods.Create(t.Context(), loose, dryRun)
	require.ErrorContains(t, err, "violates PodSecurity", "the namespace must enforce it")
}

// The API server's authorizer confirms what TestRightsCoverWhatTheHooksName finds
// in the manifests.
func TestServerGrants(t *testing.T) {
	for _, name := range []string{"base", "whole", "cloud-init-secrets", "least"} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.install(t, variants()[name])
			for _, a := range needs(t, name) {
				testwait.Eventually(t, a.String(), func() bool { return c.grants(t, a) })
			}
			for _, a := range forbidden() {
				testwait.Eventually(t, "not "+a.String(), func() bool { return !c.grants(t, a) })
			}
		})
	}
}

// grants reviews an access of Metacontroller's account.
func (c *cluster) grants(t *testing.T, a access) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   accountUser,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + accountNamespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: a.namespace, Group: a.group, Version: "*", Resource: a.resource, Subresource: a.subresource, Name: a.name, Verb: a.verb,
		},
	}}
	answer, err := c.Typed.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), review, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status.Allowed
}

// The account can make the requests of its informers.
func TestAccountLists(t *testing.T) {
	c := newCluster(t)
	c.install(t, variants()["base"])
	cfg := c.RESTConfig()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: accountUser}
	client, err := dynamic.NewForConfig(cfg)
	require.NoError(t, err)
	may := func(gvr schema.GroupVersionResource) bool {
		_, err := client.Resource(gvr).List(context.Background(), metav1.ListOptions{Limit: 1})
		if err != nil {
			require.True(t, apierrors.IsForbidden(err), err)
		}
		return err == nil
	}
	for _, gvr := range []schema.GroupVersionResource{
		{Group: "crawl.example.com", Version: "v1alpha1", Resource: "proxies"},
		{Group: "crawl.example.com", Version: "v1alpha1", Resource: "proxyprobes"},
		podResource(), controllers(),
		{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "decoratorcontrollers"},
		{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "controllerrevisions"},
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Version: "v1", Resource: "namespaces"},
	} {
		testwait.Eventually(t, gvr.String(), func() bool { return may(gvr) })
	}
	testwait.Eventually(t, "no Secrets", func() bool { return !may(corev1.SchemeGroupVersion.WithResource("secrets")) })
}
