package hooktest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// The hooks receive the same requests in the life of a Proxy from the stand-in as
// they did from the real Metacontroller, with either of its strategies.
func TestLifeWithTheStandIn(t *testing.T) {
	got := live(t, Driver{})
	for _, strategy := range upstream.Strategies() {
		requireSameLife(t, loadLife(t, string(strategy)), essences(got))
	}
}

// The recorded lives are still those of the real Metacontroller, and the stand-in
// sends the same children in every field.
func TestLifeWithTheRealMetacontroller(t *testing.T) {
	drivers := RealDrivers(t)
	var ours []observation
	t.Run("stand-in", func(t *testing.T) { ours = live(t, Driver{}) })
	for _, d := range drivers {
		t.Run(d.String(), func(t *testing.T) {
			got := live(t, d)
			if *update {
				saveLife(t, d.String(), essences(got))
			}
			requireSameLife(t, loadLife(t, d.String()), essences(got))
			requireSameLife(t, got, ours)
		})
	}
}

func essences(life []observation) []observation {
	var out []observation
	for _, o := range life {
		out = append(out, essence(o))
	}
	return out
}

// requireSameLife shows where two lives part.
func requireSameLife(t *testing.T, want, got []observation) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		require.Equal(t, want[i], got[i], "observation %d, want it in step %q, got it in step %q", i, want[i].Step, got[i].Step)
	}
	require.Len(t, got, len(want))
}

// life is one Proxy and the steps of its life.
type life struct {
	*Lab
	t        *testing.T
	recorder *recorder
	ips      int
}

const proxyName = "fra-1"

// live lives it with that driver.
func live(t *testing.T, d Driver) []observation {
	t.Helper()
	lab := New(t, shared.Get(t))
	hooks := httptest.NewServer(ourHooks(t))
	defer hooks.Close()
	l := &life{Lab: lab, t: t, recorder: newRecorder(t, lab, hooks.URL)}
	stop := lab.Drive(d, l.recorder)
	l.wholeLife()
	stop()
	return observations(t, l.recorder.requests())
}

// ourHooks polls often: a step is over when a poll has found nothing new.
func ourHooks(t *testing.T) http.Handler {
	t.Helper()
	limit, err := webhooks.ParseLimit("20%")
	require.NoError(t, err)
	providers, err := config.LoadProviders("../../examples/providers.yaml")
	require.NoError(t, err)
	return webhooks.New(webhooks.Options{
		Providers: providers, CloudInitSecrets: true, MaxReplacing: limit,
		Timing: proxy.Timing{ProvisioningDeadline: time.Hour, ProvisioningPoll: poll, DriftPoll: poll, RemovalPoll: poll, BudgetPoll: poll},
		Clock:  clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	}).Handler(nil)
}

// step calls do and waits until the hooks have received all resulting requests.
func (l *life) step(name string, do func(ctx context.Context) error) {
	l.t.Helper()
	l.recorder.begin(name)
	require.NoError(l.t, do(l.t.Context()), name)
	l.Eventually("at rest after: "+name, func() bool { return l.recorder.atRest(proxyName) })
}

func (l *life) wholeLife() {
	l.CreateSecret(secretName, secretKey, "one", true)
	l.step("create", l.create)
	l.comeUp("first")
	l.step("turns unhealthy", l.judge(v1alpha1.VerdictUnhealthy))
	l.step("turns healthy", l.judge(v1alpha1.VerdictHealthy))
	l.step("an annotation is set", l.patchProxy(`{"metadata":{"annotations":{"example.com/note":"hello"}}}`))
	l.step("the health check is edited", l.patchProxy(`{"spec":{"healthCheck":{"interval":"7s"}}}`))

	l.step("the Secret is rotated", l.rotate)
	l.step("the old Pod is gone", l.killPod)
	l.comeUp("after the rotation")

	l.step("the port is edited", l.patchProxy(`{"spec":{"port":3129}}`))
	l.step("the old Pod is gone again", l.killPod)
	l.comeUp("after the edit")

	l.step("the Pod is drained", l.drainPod)
	l.step("the Pod is lost", l.killPod)
	l.comeUp("after the loss")

	l.step("delete", l.deleteProxy)
	old, oldUID := l.pod()
	l.step("somebody strips its finalizers", l.patchProxy(`{"metadata":{"finalizers":null}}`))
	l.step("create under the old name, while the old Pod is dying", l.create)
	l.step("the predecessor's Pod is gone", func(ctx context.Context) error { return l.Kill(ctx, old, oldUID) })
	l.comeUp("as a successor")

	l.step("delete the successor", l.deleteProxy)
	l.step("its Pod is gone", l.killPod)
	require.Nil(l.t, l.Proxy(proxyName), "finalized")
}

// comeUp acts as scheduler, kubelet and prober for the current Pod.
func (l *life) comeUp(when string) {
	l.t.Helper()
	name, _ := l.pod()
	l.step(when+": scheduled", func(ctx context.Context) error { return l.Bind(ctx, name) })
	l.ips++
	l.step(when+": running", func(ctx context.Context) error { return l.Run(ctx, name, fmt.Sprintf("10.1.2.%d", l.ips)) })
	l.step(when+": healthy", l.judge(v1alpha1.VerdictHealthy))
	require.Equal(l.t, v1alpha1.PhaseReady, l.Proxy(proxyName).Status.Phase)
}

func (l *life) create(context.Context) error {
	l.CreateProxies(WithSecret(Managed(proxyName, provider), secretName, secretKey))
	return nil
}

func (l *life) judge(verdict v1alpha1.Verdict) func(context.Context) error {
	return func(ctx context.Context) error {
		_, uid := l.pod()
		return l.Judge(ctx, proxyName, string(uid), verdict, "AsTheTestSays")
	}
}

func (l *life) patchProxy(patch string) func(context.Context) error {
	return func(context.Context) error {
		l.Patch(v1alpha1.ProxyResource(), proxyName, patch)
		return nil
	}
}

func (l *life) rotate(context.Context) error {
	l.Patch(SecretResource(), secretName, `{"stringData":{"`+secretKey+`":"two"}}`)
	return nil
}

func (l *life) killPod(ctx context.Context) error {
	name, uid := l.pod()
	return l.Kill(ctx, name, uid)
}

// drainPod deletes the Pod as the drain of a node does.
func (l *life) drainPod(ctx context.Context) error {
	name, _ := l.pod()
	return l.In(PodResource()).Delete(ctx, name, metav1.DeleteOptions{})
}

func (l *life) deleteProxy(ctx context.Context) error {
	return l.In(v1alpha1.ProxyResource()).Delete(ctx, proxyName, metav1.DeleteOptions{})
}

// pod is the Pod of the Proxy.
func (l *life) pod() (name string, uid types.UID) {
	l.t.Helper()
	name = v1alpha1.InstanceName(l.Proxy(proxyName).UID)
	pod, err := l.In(PodResource()).Get(l.t.Context(), name, metav1.GetOptions{})
	require.NoError(l.t, err)
	return name, pod.GetUID()
}
