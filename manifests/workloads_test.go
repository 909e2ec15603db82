package manifests_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// drain is how long httpserve lets requests in flight go on after SIGTERM.
const drain = 20 * time.Second

// workloads are what makes Pods.
func (all objects) workloads() objects {
	return all.ofKind("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
}

func podTemplate(t *testing.T, workload *unstructured.Unstructured) corev1.PodTemplateSpec {
	t.Helper()
	if workload.GetKind() == "StatefulSet" {
		return as[appsv1.StatefulSet](t, workload).Spec.Template
	}
	return as[appsv1.Deployment](t, workload).Spec.Template
}

func podSpec(t *testing.T, workload *unstructured.Unstructured) corev1.PodSpec {
	t.Helper()
	return podTemplate(t, workload).Spec
}

func replicasOf(t *testing.T, workload *unstructured.Unstructured) int {
	t.Helper()
	if workload.GetKind() == "StatefulSet" {
		return int(*as[appsv1.StatefulSet](t, workload).Spec.Replicas)
	}
	return int(*as[appsv1.Deployment](t, workload).Spec.Replicas)
}

func TestPodsAreConfined(t *testing.T) {
	for name, all := range renderAll(t) {
		require.Len(t, all.workloads(), 3, name)
		for _, workload := range all.workloads() {
			t.Run(name+"/"+workload.GetName(), func(t *testing.T) {
				spec := podSpec(t, workload)
				assert.Equal(t, workload.GetName(), spec.ServiceAccountName)
				assert.False(t, *spec.EnableServiceLinks)
				assert.True(t, *spec.SecurityContext.RunAsNonRoot)
				assert.Positive(t, *spec.SecurityContext.RunAsUser)
				assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type)
				for _, c := range spec.Containers {
					assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, c.Name)
					assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation, c.Name)
					assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, c.Name)
					assert.NotZero(t, c.Resources.Requests.Cpu().MilliValue(), c.Name)
					assert.NotZero(t, c.Resources.Requests.Memory().Value(), c.Name)
					assert.NotZero(t, c.Resources.Limits.Memory().Value(), c.Name)
					assert.Zero(t, c.Resources.Limits.Cpu().MilliValue(), "%s: throttling makes hooks late and leases lapse", c.Name)
				}
			})
		}
	}
}

// A token is mounted where the API server is called, by that Pod's own wish.
func TestTokensWhereTheyAreNeeded(t *testing.T) {
	for name, all := range renderAll(t) {
		for _, workload := range []string{"webhooks", "prober", "discovery"} {
			spec := podSpec(t, all.workloads().named(t, workload))
			assert.True(t, *spec.AutomountServiceAccountToken, "%s: %s", name, workload)
			account := as[corev1.ServiceAccount](t, all.find(t, "ServiceAccount", workload))
			assert.False(t, *account.AutomountServiceAccountToken, "%s: %s", name, workload)
		}
	}
}

func (all objects) named(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range all {
		if o.GetName() == name {
			return o
		}
	}
	require.Fail(t, "not there", name)
	return nil
}

func TestProbesAndPorts(t *testing.T) {
	for name, all := range renderAll(t) {
		for _, workload := range all.workloads() {
			for _, c := range podSpec(t, workload).Containers {
				ports := map[string]int32{}
				for _, port := range c.Ports {
					require.Equal(t, corev1.ProtocolTCP, port.Protocol)
					ports[port.Name] = port.ContainerPort
				}
				ops := "ops"
				if c.Name == "cloud" {
					ops = "cloud-ops"
				}
				at := name + "/" + c.Name
				require.NotNil(t, c.LivenessProbe, at)
				require.NotNil(t, c.ReadinessProbe, at)
				assert.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path, at)
				assert.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, at)
				assert.Equal(t, ops, c.LivenessProbe.HTTPGet.Port.String(), at)
				assert.Equal(t, ops, c.ReadinessProbe.HTTPGet.Port.String(), at)
				assertListens(t, c, "ops-addr", ports[ops])
				assertListens(t, c, "listen", ports["hooks"])
				assertListens(t, c, "addr", ports["api"])
			}
		}
	}
}

// assertListens compares a flag's port with the one that is declared.
func assertListens(t *testing.T, c corev1.Container, flag string, port int32) {
	t.Helper()
	if addr, given := flagsOf(t, c)[flag]; given {
		_, declared, _ := strings.Cut(addr, ":")
		assert.Equal(t, declared, intText(port), "%s --%s", c.Name, flag)
	}
}

// Servers drain: a Pod leaves the Service before its port closes, and requests in flight
// can finish. A single discovery has no other replica for its clients, so that its drain
// is short.
func TestGracefulEnd(t *testing.T) {
	for name, all := range renderAll(t) {
		for _, workload := range []string{"webhooks", "discovery"} {
			spec := podSpec(t, all.workloads().named(t, workload))
			var sleep time.Duration
			for _, c := range spec.Containers {
				if c.Name == workload {
					require.NotNil(t, c.Lifecycle, "%s: %s", name, workload)
					sleep = time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
				}
			}
			if workload == "discovery" && replicasOf(t, all.workloads().named(t, workload)) == 1 {
				assert.LessOrEqual(t, sleep, time.Second, name)
			} else {
				assert.GreaterOrEqual(t, sleep, 3*time.Second, "%s: %s", name, workload)
			}
			grace := time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second
			assert.Greater(t, grace, sleep+drain, "%s: %s", name, workload)
		}
	}
}

// What runs twice survives a drained node and a rollout.
func TestWhatRunsTwice(t *testing.T) {
	for name, all := range renderAll(t) {
		twice := 0
		for _, workload := range all.workloads() {
			replicas := replicasOf(t, workload)
			if replicas < 2 {
				continue
			}
			twice++
			pods := labels.Set(podTemplate(t, workload).Labels)
			pdb := as[policyv1.PodDisruptionBudget](t, all.find(t, "PodDisruptionBudget", workload.GetName()))
			assertSelects(t, pdb.Spec.Selector, pods)
			assert.Less(t, pdb.Spec.MaxUnavailable.IntValue(), replicas)
			var spread []string
			for _, c := range podSpec(t, workload).TopologySpreadConstraints {
				spread = append(spread, c.TopologyKey)
				assertSelects(t, c.LabelSelector, pods)
				assert.Equal(t, corev1.ScheduleAnyway, c.WhenUnsatisfiable, "one node must be enough")
			}
			assert.ElementsMatch(t, []string{corev1.LabelHostname, corev1.LabelTopologyZone}, spread, "%s: %s", name, workload.GetName())
		}
		assert.Len(t, all.ofKind("PodDisruptionBudget"), twice, "%s: a budget for one replica would stop every drain, or nothing", name)
	}
}

func assertSelects(t *testing.T, selector *metav1.LabelSelector, pods labels.Set) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	assert.False(t, s.Empty())
	assert.True(t, s.Matches(pods))
}

// Every flag in the manifests is one of the program's.
func TestFlagsExist(t *testing.T) {
	known := map[string]string{}
	for name, all := range renderAll(t) {
		for _, workload := range all.workloads() {
			for _, c := range podSpec(t, workload).Containers {
				if known[c.Name] == "" {
					help, err := exec.Command(program(t, c.Name), "--help").CombinedOutput()
					require.NoError(t, err, string(help))
					known[c.Name] = string(help)
				}
				for flag := range flagsOf(t, c) {
					assert.Regexp(t, `(?m)^  --`+regexp.QuoteMeta(flag)+` `, known[c.Name], "%s: %s", name, c.Name)
				}
				for _, env := range c.Env {
					assert.Contains(t, known[c.Name], env.Name, "%s: %s", name, c.Name)
				}
			}
		}
	}
}
