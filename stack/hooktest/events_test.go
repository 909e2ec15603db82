package hooktest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/events"
)

// sender sends Events to the lab's API server until the test ends.
func sender(t *testing.T, l *Lab) *events.Recorder {
	t.Helper()
	api, closeIdle, err := events.Client(l.cp.RESTConfig())
	require.NoError(t, err)
	rec := events.New(events.Options{API: api, Instance: "lab", Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, rec.Run(ctx))
	}()
	t.Cleanup(func() { cancel(); <-done; closeIdle() })
	return rec
}

// eventCounts counts the Events about a Proxy by reason.
func (l *Lab) eventCounts(p *v1alpha1.Proxy) map[string]int {
	l.t.Helper()
	list, err := l.core.CoreV1().Events(Namespace).List(l.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID)})
	if err != nil {
		l.t.Fatalf("list events: %v", err)
	}
	out := map[string]int{}
	for _, e := range list.Items {
		if e.Source.Component == "egress-proxies" { // Metacontroller has its own
			out[e.Reason] += int(e.Count)
		}
	}
	return out
}

// Every transition has one Event, however often and with however stale a status the hooks are
// called.
func TestEventIsSentOncePerTransition(t *testing.T) {
	const size = 3
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			tally := NewTally(release{providers: providers, timing: quick(driftPoll), events: sender(t, l)}.hooks(t).Handler(nil))
			l.Drive(d, tally)
			fleetOf(l, size)
			want := map[string]map[string]int{}
			for name := range l.Proxies() {
				want[name] = map[string]int{"Created": 1, "Healthy": 1}
			}

			l.Patch(v1alpha1.ProxyResource(), "px-0", `{"spec":{"port":3129}}`)
			l.Eventually("replaced", func() bool { return l.Proxy("px-0").Status.Port == 3129 && l.inPhase(v1alpha1.PhaseReady) == size })
			want["px-0"] = map[string]int{"Created": 2, "Healthy": 2, "Replacing": 1}

			old := l.Proxy("px-1").Status.InstanceID
			require.NoError(t, l.In(PodResource()).Delete(t.Context(), v1alpha1.InstanceName(l.Proxy("px-1").UID), metav1.DeleteOptions{}))
			l.Eventually("healed", func() bool { return l.Proxy("px-1").Status.InstanceID != old && l.inPhase(v1alpha1.PhaseReady) == size })
			want["px-1"] = map[string]int{"Created": 2, "Healthy": 2, "InstanceTerminated": 1}

			require.NoError(t, l.Judge(t.Context(), "px-2", l.Proxy("px-2").Status.InstanceID, v1alpha1.VerdictUnhealthy, "DialFailed"))
			l.Eventually("Unhealthy", func() bool { return l.inPhase(v1alpha1.PhaseUnhealthy) == 1 })
			want["px-2"]["Unhealthy"] = 1

			each(l, tally, size, 2)
			for name, p := range l.Proxies() {
				l.Eventually("the last of them", func() bool { return len(l.eventCounts(p)) == len(want[name]) })
			}
			each(l, tally, size, 2)
			for name, p := range l.Proxies() {
				assert.Equal(t, want[name], l.eventCounts(p), name)
			}
		})
	}
}

// A foreign ProxyProbe of the same name blocks ours, and its deletion triggers no reconcile. The
// Proxy reports it, and recovers after the deletion. Server-side apply takes the ProxyProbe over
// instead.
func TestForeignProxyProbeOfTheSameName(t *testing.T) {
	const name = "fra-1"
	timing := quick(driftPoll)
	timing.ProvisioningDeadline = time.Second
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			foreign := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion().String(), "kind": "ProxyProbe",
				"metadata": map[string]any{"name": name},
				"spec":     map[string]any{"instanceID": "mine", "host": "192.0.2.1", "port": int64(3128)},
			}}
			_, err := l.In(v1alpha1.ProxyProbeResource()).Create(t.Context(), foreign, metav1.CreateOptions{})
			require.NoError(t, err)
			l.Drive(d, release{providers: providers, timing: timing}.hooks(t).Handler(nil))
			l.PlayKubelet()
			l.PlayProber()
			l.CreateProxies(Managed(name, provider))
			if d.Strategy != upstream.ServerSideApply {
				l.Eventually("it is said what is wrong", func() bool {
					c := meta.FindStatusCondition(l.Proxy(name).Status.Conditions, v1alpha1.ConditionHealthy)
					return c != nil && strings.Contains(c.Message, "no ProxyProbe default/"+name)
				})
				require.NoError(t, l.In(v1alpha1.ProxyProbeResource()).Delete(t.Context(), name, metav1.DeleteOptions{}))
			}
			l.Eventually("Ready", func() bool { return l.inPhase(v1alpha1.PhaseReady) == 1 })
		})
	}
}

// A kubelet refuses each Pod at once. Pods are created ever more slowly, with the reason
// in the condition, and the first one that is not refused serves.
func TestPodThatIsRefusedAtOnceIsCreatedEverMoreSlowly(t *testing.T) {
	const name, refusals = "fra-1", 3
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			var mu sync.Mutex
			var made []time.Time
			seen := map[types.UID]int{}
			l.play(PodResource(), func(ctx context.Context, obj *unstructured.Unstructured) error {
				mu.Lock()
				if seen[obj.GetUID()] == 0 {
					made = append(made, obj.GetCreationTimestamp().Time)
					seen[obj.GetUID()] = len(made)
				}
				nth := seen[obj.GetUID()]
				mu.Unlock()
				phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
				switch {
				case obj.GetDeletionTimestamp() != nil:
					return l.Kill(ctx, obj.GetName(), obj.GetUID())
				case phase != "Pending":
					return nil
				case nth > refusals:
					return l.Run(ctx, obj.GetName(), "10.77.0.1")
				}
				return l.Refuse(ctx, obj.GetName(), "OutOfcpu")
			})
			l.PlayProber()
			l.Drive(d, release{providers: providers, timing: quick(driftPoll)}.hooks(t).Handler(nil))
			l.CreateProxies(Managed(name, provider))
			l.Eventually("the reason is in the condition", func() bool {
				c := meta.FindStatusCondition(l.Proxy(name).Status.Conditions, v1alpha1.ConditionProvisioned)
				return c != nil && c.Reason == v1alpha1.ReasonInstanceFailing && strings.Contains(c.Message, "OutOfcpu")
			})
			l.Eventually("Ready", func() bool { return l.inPhase(v1alpha1.PhaseReady) == 1 })
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, made, refusals+1)
			for i := 2; i < len(made); i++ { // creation times are whole seconds
				before, wait := made[i-1].Sub(made[0]), made[i].Sub(made[i-1])
				assert.GreaterOrEqual(t, wait+2*time.Second, before, "the wait before Pod %d", i)
			}
		})
	}
}
