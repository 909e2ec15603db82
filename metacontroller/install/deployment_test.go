package install_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	return controlplanetest.Convert[appsv1.Deployment](t, find(t, render(t, variants()["base"]), "Deployment", "metacontroller"))
}

// flagsOf returns the arguments of the container by name.
func flagsOf(t *testing.T, d *appsv1.Deployment) map[string]string {
	t.Helper()
	flags := map[string]string{}
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		require.NotContains(t, flags, name)
		flags[name] = value
	}
	return flags
}

func TestFlags(t *testing.T) {
	assert.Equal(t, map[string]string{
		"target-label-selector":     "crawl.example.com/metacontroller=egress-proxies",
		"leader-election":           "",
		"leader-election-id":        "metacontroller",
		"leader-election-namespace": "$(POD_NAMESPACE)",
		"client-go-qps":             "50",
		"client-go-burst":           "100",
		"workers":                   "20",
		"zap-log-level":             "4",
		"metrics-address":           ":9999",
		"health-probe-bind-address": ":8081",
	}, flagsOf(t, deployment(t)))
}

// METACONTROLLER names the program itself: it must know the flags.
func TestFlagsExist(t *testing.T) {
	program := os.Getenv("METACONTROLLER")
	if program == "" {
		t.Skip("METACONTROLLER names no program")
	}
	help, _ := exec.Command(program, "--help").CombinedOutput() // Go's flag package exits with 2
	takesValue := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  -(\S+)( \S+)?$`).FindAllStringSubmatch(string(help), -1) {
		takesValue[m[1]] = m[2] != ""
	}
	for name, value := range flagsOf(t, deployment(t)) {
		takes, known := takesValue[name]
		assert.True(t, known, "--%s is not a flag of %s", name, program)
		assert.Equal(t, takes, value != "", "--%s", name)
	}
}

// Our Metacontroller takes our controller and no other.
func TestSelectorFitsController(t *testing.T) {
	selector, err := labels.Parse(flagsOf(t, deployment(t))["target-label-selector"])
	require.NoError(t, err)
	cc := find(t, render(t, variants()["whole"]), metacontroller.ControllerKind, metacontroller.ControllerName)
	assert.True(t, selector.Matches(labels.Set(cc.GetLabels())))
	assert.False(t, selector.Matches(labels.Set{}))
}

func TestImageIsPinned(t *testing.T) {
	assert.Equal(t, "ghcr.io/metacontroller/metacontroller:v4.17.2", deployment(t).Spec.Template.Spec.Containers[0].Image)

	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	v := variants()["base"]
	v.extra = "images:\n- name: ghcr.io/metacontroller/metacontroller\n  digest: " + digest + "\n"
	d := controlplanetest.Convert[appsv1.Deployment](t, find(t, render(t, v), "Deployment", "metacontroller"))
	assert.True(t, strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, "@"+digest), "an overlay can pin the digest")
}

func TestHighAvailability(t *testing.T) {
	d := deployment(t)
	assert.EqualValues(t, 2, *d.Spec.Replicas)
	assert.Equal(t, 0, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
	pods := labels.Set(d.Spec.Template.Labels)

	pdb := controlplanetest.Convert[policyv1.PodDisruptionBudget](t, find(t, render(t, variants()["base"]), "PodDisruptionBudget", "metacontroller"))
	assertSelects(t, pdb.Spec.Selector, pods)
	assert.Less(t, pdb.Spec.MaxUnavailable.IntValue(), int(*d.Spec.Replicas))

	var spread []string
	for _, constraint := range d.Spec.Template.Spec.TopologySpreadConstraints {
		spread = append(spread, constraint.TopologyKey)
		assertSelects(t, constraint.LabelSelector, pods)
		assert.Equal(t, corev1.ScheduleAnyway, constraint.WhenUnsatisfiable, "one node must be enough")
	}
	assert.ElementsMatch(t, []string{corev1.LabelHostname, corev1.LabelTopologyZone}, spread)
}

func assertSelects(t *testing.T, selector *metav1.LabelSelector, pods labels.Set) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	assert.False(t, s.Empty())
	assert.True(t, s.Matches(pods))
}

func TestContainer(t *testing.T) {
	d := deployment(t)
	spec := d.Spec.Template.Spec
	require.Len(t, spec.Containers, 1)
	c := spec.Containers[0]

	assert.Equal(t, "metacontroller", spec.ServiceAccountName)
	assert.True(t, *spec.AutomountServiceAccountToken)
	assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "NO_PROXY" })
	require.GreaterOrEqual(t, i, 0)
	assert.Equal(t, "*", c.Env[i].Value)

	ports := map[string]int32{}
	for _, port := range c.Ports {
		ports[port.Name] = port.ContainerPort
	}
	assert.Equal(t, map[string]int32{"metrics": 9999, "health": 8081}, ports)
	assert.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
	assert.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
	assert.Equal(t, "health", c.LivenessProbe.HTTPGet.Port.String())

	assert.NotZero(t, c.Resources.Requests.Cpu().MilliValue())
	assert.NotZero(t, c.Resources.Requests.Memory().Value())
	assert.NotZero(t, c.Resources.Limits.Memory().Value())
	assert.Zero(t, c.Resources.Limits.Cpu().MilliValue(), "a throttled leader loses its Lease")
}

func TestNamespaceIsRestricted(t *testing.T) {
	ns := find(t, render(t, variants()["base"]), "Namespace", "egress-proxies-metacontroller")
	assert.Equal(t, "restricted", ns.GetLabels()["pod-security.kubernetes.io/enforce"])
}
