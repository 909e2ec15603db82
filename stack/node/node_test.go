package node

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// sleeper is a Pod for a scripted node: the shell ignores the directive that every configuration
// has, an unknown command.
func sleeper(name string) *corev1.Pod { return proxyPod(name, "http_port 3128\nexec sleep 300\n") }

func TestPodLifecycle(t *testing.T) {
	clk := clocktesting.NewFakeClock(early.Time)
	r := newRigAt(t, scripted(t), "127.42.1.0/24", clk)
	r.create(sleeper("a"))

	pod := r.awaitReady("a")
	assert.Equal(t, r.cfg.Name, pod.Spec.NodeName, "bound to the node")
	assert.Equal(t, "127.42.1.16", pod.Status.PodIP)
	assert.Equal(t, "127.42.1.1", pod.Status.HostIP)
	assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
	pid := pidOf(t, pod.Status.ContainerStatuses[0].ContainerID)
	require.NoError(t, syscall.Kill(pid, 0))
	assert.DirExists(t, r.folder(pod))

	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	r.await("a", "not ready", func(p *corev1.Pod) bool { return !p.Status.ContainerStatuses[0].Ready })
	within(t, "it waits to be restarted", clk.HasWaiters)
	clk.Step(time.Second)
	again := r.awaitReady("a")
	assert.Equal(t, int32(1), again.Status.ContainerStatuses[0].RestartCount)
	assert.Equal(t, int32(137), again.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
	assert.Equal(t, pod.Status.PodIP, again.Status.PodIP)
	pid = pidOf(t, again.Status.ContainerStatuses[0].ContainerID)

	r.delete("a", 30)
	r.awaitGone("a")
	assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the process ends before the Pod goes")
	assert.NoDirExists(t, r.folder(pod))
	assert.Zero(t, r.node.addresses.inUse())
}

func TestDeletionWaitsForTheGracePeriodOnly(t *testing.T) {
	r := newRig(t, scripted(t), "127.42.1.0/24")
	r.create(proxyPod("stubborn", "http_port 3128\ntrap '' TERM\necho trapped\nsleep 300\nsleep 300\n"))
	pod := r.awaitReady("stubborn")
	within(t, "the trap is set", func() bool {
		b, err := os.ReadFile(filepath.Join(r.folder(pod), "output.log"))
		return err == nil && strings.Contains(string(b), "trapped")
	})
	r.delete("stubborn", 1)
	r.awaitGone("stubborn")
}

func TestUnchangedPodIsNotWritten(t *testing.T) {
	r := newRig(t, scripted(t), "127.42.1.0/24")
	r.create(sleeper("a"))
	r.awaitReady("a")
	_, err := r.client.CoreV1().Pods("default").Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	r.create(sleeper("b")) // seen after the change of a
	r.awaitReady("b")
	r.create(sleeper("c"))
	r.awaitReady("c")
	within(t, "the answers have come", func() bool { return r.statusWrites.Load() >= 3 })
	r.stop() // and what is under way ends
	assert.Equal(t, int64(3), r.statusWrites.Load(), "one status write for each Pod that came up")
}

func TestInvalidPodStatusHasTheReason(t *testing.T) {
	r := newRig(t, scripted(t), "127.42.1.0/24")
	nginx := sleeper("nginx")
	nginx.Spec.Containers[0].Name = "nginx"
	bare := sleeper("bare")
	bare.Spec.Containers[0].Env = nil
	for says, pod := range map[string]*corev1.Pod{
		`container named "squid"`: nginx,
		"no environment variable": bare,
		"0 http_port lines":       proxyPod("noport", "via off"),
		"line 1":                  proxyPod("badport", "http_port 99999"),
	} {
		r.create(pod)
		got := r.await(pod.Name, "refused", func(p *corev1.Pod) bool { return len(p.Status.ContainerStatuses) == 1 })
		waiting := got.Status.ContainerStatuses[0].State.Waiting
		require.NotNil(t, waiting)
		assert.Equal(t, reasonConfigError, waiting.Reason)
		assert.Contains(t, waiting.Message, says)
		assert.Equal(t, corev1.PodPending, got.Status.Phase)
		r.delete(pod.Name, 30)
		r.awaitGone(pod.Name)
	}
	assert.Zero(t, r.node.addresses.inUse())
}

func TestPodsOfOtherNodesAreIgnored(t *testing.T) {
	r := newRig(t, scripted(t), "127.42.1.0/24")
	other := sleeper("other")
	other.Spec.NodeName = "elsewhere"
	r.create(other)
	r.create(sleeper("a"))
	r.awaitReady("a")
	pod, _ := r.get("other")
	assert.Empty(t, pod.Status.ContainerStatuses)
	assert.NoDirExists(t, r.folder(pod))
}

func TestNodeRestartRestartsItsPods(t *testing.T) {
	r := newRig(t, scripted(t), "127.42.1.0/24")
	r.create(sleeper("first"))
	r.awaitReady("first")
	r.create(sleeper("kept"))
	kept := r.awaitReady("kept")
	r.create(sleeper("deleted"))
	deleted := r.awaitReady("deleted")
	gone, _ := r.get("first")

	r.stop()
	assert.ErrorIs(t, syscall.Kill(pidOf(t, kept.Status.ContainerStatuses[0].ContainerID), 0), syscall.ESRCH)
	r.delete("deleted", 30)
	r.delete("first", 0)
	r.awaitGone("first")
	r.start()

	r.awaitGone("deleted")
	again := r.await("kept", "restarted", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1 && p.Status.ContainerStatuses[0].Ready
	})
	assert.Equal(t, kept.Status.PodIP, again.Status.PodIP, "others know the address")
	assert.NotEqual(t, kept.Status.ContainerStatuses[0].ContainerID, again.Status.ContainerStatuses[0].ContainerID)
	assert.Equal(t, reasonUnknown, again.Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason)
	assert.DirExists(t, r.folder(again))
	assert.NoDirExists(t, r.folder(gone))
	assert.NoDirExists(t, r.folder(deleted))
}

func TestForceReplacedPodOfTheSameName(t *testing.T) {
	r := newRig(t, scripted(t), "127.42.1.0/24")
	r.create(sleeper("a"))
	old := r.awaitReady("a")
	r.delete("a", 0)
	r.awaitGone("a")
	r.create(sleeper("a"))

	replaced := r.awaitReady("a")
	assert.NotEqual(t, old.UID, replaced.UID)
	within(t, "nothing of the old one is left", func() bool {
		_, err := os.Stat(r.folder(old))
		return os.IsNotExist(err) && r.node.addresses.inUse() == 1
	})
	assert.ErrorIs(t, syscall.Kill(pidOf(t, old.Status.ContainerStatuses[0].ContainerID), 0), syscall.ESRCH)
}

func TestPodsWaitForAnAddress(t *testing.T) {
	const all = 15 // 16 to 30
	r := newRig(t, scripted(t), "127.42.1.0/27")
	for i := range all {
		r.create(sleeper(fmt.Sprintf("p%d", i)))
	}
	for i := range all {
		r.awaitReady(fmt.Sprintf("p%d", i))
	}
	r.create(sleeper("late"))
	got := r.await("late", "told why it waits", func(p *corev1.Pod) bool { return len(p.Status.ContainerStatuses) == 1 })
	require.NotNil(t, got.Status.ContainerStatuses[0].State.Waiting)
	assert.Equal(t, reasonNoAddress, got.Status.ContainerStatuses[0].State.Waiting.Reason)

	freed := r.awaitReady("p7").Status.PodIP
	r.delete("p7", 30)
	assert.Equal(t, freed, r.awaitReady("late").Status.PodIP)
}

func TestMetrics(t *testing.T) {
	r := newRig(t, scripted(t), "127.42.1.0/24")
	r.create(sleeper("a"))
	r.awaitReady("a")
	r.create(proxyPod("crashing", "http_port 3128\nexit 1\n"))
	r.await("crashing", "waits", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil
	})
	within(t, "both are counted", func() bool {
		return testutil.CollectAndCompare(r.node.Collector(), strings.NewReader(`
# HELP proxy_operator_node_addresses_in_use Addresses of the node's subnet that Pods have.
# TYPE proxy_operator_node_addresses_in_use gauge
proxy_operator_node_addresses_in_use 2
# HELP proxy_operator_node_containers Containers of this node by state.
# TYPE proxy_operator_node_containers gauge
proxy_operator_node_containers{state="running"} 1
proxy_operator_node_containers{state="waiting"} 1
`)) == nil
	})
}

func TestSecondNodeOnARootFails(t *testing.T) {
	r := newRig(t, scripted(t), "127.42.1.0/24")
	second, err := New(r.cfg)
	require.NoError(t, err)
	require.Error(t, second.Ready(), "it has not listed any Pod")
	err = second.Run(t.Context())
	require.ErrorContains(t, err, r.cfg.Root)
	require.ErrorContains(t, err, "give each node its own")
}

func TestNewListsAllErrors(t *testing.T) {
	_, err := New(Config{Subnet: netip.MustParsePrefix("10.0.0.0/8"), Root: "a b"})
	for _, says := range []string{"name", "127.0.0.0/8", "not an absolute path", "spaces"} {
		require.ErrorContains(t, err, says)
	}
}
