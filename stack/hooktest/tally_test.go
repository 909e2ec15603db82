package hooktest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

const driftPoll = time.Second

// fleetOf creates Managed Proxies, with the fake kubelet and prober, and waits until all are Ready.
func fleetOf(l *Lab, n int) {
	l.t.Helper()
	l.PlayKubelet()
	l.PlayProber()
	l.CreateProxies(fleet(n)...)
	l.Eventually("all Ready", func() bool { return l.inPhase(v1alpha1.PhaseReady) == n })
}

func fleet(n int) []*v1alpha1.Proxy {
	var proxies []*v1alpha1.Proxy
	for i := range n {
		proxies = append(proxies, Managed(fmt.Sprintf("px-%d", i), provider))
	}
	return proxies
}

// inPhase counts the Proxies whose current spec is in that phase.
func (l *Lab) inPhase(phase v1alpha1.Phase) int {
	l.t.Helper()
	n := 0
	for _, p := range l.Proxies() {
		if p.Status.Phase == phase && p.Status.ObservedGeneration == p.Generation {
			n++
		}
	}
	return n
}

// each waits until every Proxy of a fleet has had that many more sync calls.
func each(l *Lab, tally *Tally, size, more int) {
	l.t.Helper()
	before := tally.Of(metacontroller.HookSync)
	l.Eventually(fmt.Sprintf("%d more sync calls about each", more), func() bool {
		now := tally.Of(metacontroller.HookSync)
		for name, calls := range now {
			if len(calls) < len(before[name])+more {
				return false
			}
		}
		return len(now) == size
	})
}

// A fleet at rest costs one hook call per Proxy and drift poll, and no write.
func TestFleetAtRestWritesNothing(t *testing.T) {
	const size, polls = 10, 3
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			tally := NewTally(release{providers: providers, timing: quick(driftPoll)}.hooks(t).Handler(nil))
			l.Drive(d, tally)
			fleetOf(l, size)
			each(l, tally, size, 2) // earlier, shorter timers have expired by then

			versions, writes, calls := l.Versions(), l.Writes(), len(tally.Calls())
			each(l, tally, size, polls)
			assert.Equal(t, versions, l.Versions())
			assert.Equal(t, writes, l.Writes())
			requireOneCallAPoll(t, tally.Calls()[calls:])
		})
	}
}

// requireOneCallAPoll requires sync calls only, at least a drift poll apart: a response starts the
// timer.
func requireOneCallAPoll(t *testing.T, calls []Call) {
	t.Helper()
	last := map[string]time.Time{}
	for _, c := range calls {
		require.Equal(t, metacontroller.HookSync, c.Hook)
		if before, ok := last[c.Proxy]; ok {
			assert.GreaterOrEqual(t, c.Began.Sub(before), driftPoll, c.Proxy)
		}
		last[c.Proxy] = c.Began
	}
}

// This shows that the test above can fail.
func TestWritesAreCounted(t *testing.T) {
	l := New(t, shared.Get(t))
	versions, writes := l.Versions(), l.Writes()
	l.CreateSecret("boot", "user-data", "one", true)
	assert.NotEqual(t, versions, l.Versions())
	l.Eventually("the one write", func() bool { return l.Writes()["POST secrets/"] == writes["POST secrets/"]+1 }) // counted after its response
	versions, writes = l.Versions(), l.Writes()
	l.Patch(SecretResource(), "boot", `{"metadata":{"labels":{"a":"b"}}}`)
	assert.NotEqual(t, versions, l.Versions())
	l.Eventually("the one write", func() bool { return l.Writes()["PATCH secrets/"] == writes["PATCH secrets/"]+1 })
}

// A release that builds other Pods replaces none of the existing ones.
func TestUpgradeReplacesNoPod(t *testing.T) {
	const size = 10
	next := strings.Replace(providers, `image: "squid:1"`, `image: "squid:2", cpu: 250m, memory: 256Mi, allowPorts: [443]`, 1)
	require.NotEqual(t, providers, next)
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			hooks := NewSwitch(release{providers: providers, timing: quick(driftPoll)}.hooks(t).Handler(nil))
			tally := NewTally(hooks)
			l.Drive(d, tally)
			fleetOf(l, size)
			each(l, tally, size, 2)

			versions, writes := l.Versions(), l.Writes()
			hooks.To(release{providers: next, timing: quick(driftPoll)}.hooks(t).Handler(nil))
			each(l, tally, size, 3)
			assert.Equal(t, versions, l.Versions())
			assert.Equal(t, writes, l.Writes())

			l.CreateProxies(Managed("px-new", provider))
			l.Eventually("a new one", func() bool { return l.inPhase(v1alpha1.PhaseReady) == size+1 })
			assert.Equal(t, "squid:2", imageOf(t, l, "px-new"))
			assert.Equal(t, "squid:1", imageOf(t, l, "px-0"))
		})
	}
}

func imageOf(t *testing.T, l *Lab, proxy string) string {
	t.Helper()
	pod, err := l.core.CoreV1().Pods(Namespace).Get(t.Context(), v1alpha1.InstanceName(l.Proxy(proxy).UID), metav1.GetOptions{})
	require.NoError(t, err)
	return pod.Spec.Containers[0].Image
}
