package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

const namespace = "default"

// open makes a fleet, and returns what reads its history.
func open(t *testing.T, kube *rest.Config) (*Fleet, func() *history.History) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history")
	recorder, err := history.Start(path, clock.RealClock{}, history.Begin{})
	require.NoError(t, err)
	f, err := New(Config{
		Kube: kube, Namespace: namespace, Provider: "local", CloudProvider: "cloud", ProbeURL: "https://127.0.0.1:1/generate_204",
		ExternalIP: controlplanetest.Addr(), Sites: external.Sites{Real: "127.0.0.1:1"}, External: 2, Pods: 2, VMs: 4, Recorder: recorder,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { defer close(watched); f.Watch(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-watched
		assert.NoError(t, f.Close())
		assert.NoError(t, recorder.Close())
	})
	return f, func() *history.History {
		h, err := history.Open(path)
		require.NoError(t, err)
		return h
	}
}

// real returns a fleet on a real API server without controllers, so that
// they have no finalizers.
func real(t *testing.T) (*Fleet, func() *history.History) {
	t.Helper()
	cp := shared.Get(t)
	require.NoError(t, controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...))
	f, read := open(t, cp.RESTConfig())
	t.Cleanup(func() {
		everything := metav1.ListOptions{}
		require.NoError(t, f.objects.DeleteCollection(context.Background(), metav1.DeleteOptions{}, everything))
	})
	return f, read
}

func TestUsers(t *testing.T) {
	f, read := real(t)
	require.NoError(t, f.Complete(t.Context()))
	require.NoError(t, f.Complete(t.Context()), "again changes nothing")
	require.Len(t, read().Acts, 8)
	for _, name := range f.Names() {
		for pick := range uint64(12) {
			require.True(t, f.Do(t.Context(), name, plan.ActInPlace, pick), "%s %d", name, pick)
			require.True(t, f.Do(t.Context(), name, plan.ActReplace, pick), "%s %d", name, pick)
		}
	}
	h := read()
	require.Len(t, h.Acts, 8+8*24)
	for i, a := range h.Acts[8:] {
		assert.Equal(t, history.Edit, a.Verb)
		assert.False(t, a.Failed || a.Uncertain, "%+v", a)
		assert.NotEmpty(t, a.UID)
		assert.Equal(t, i%2 == 1 && a.Wanted.Mode == "Managed", a.Replaces)
	}
	wanted := map[string]string{}
	for _, a := range h.Acts {
		key := a.Wanted.SpecHash + a.Wanted.Endpoint
		if a.Verb == history.Edit && (a.Replaces || a.Wanted.Mode == "External" && wanted[a.Proxy] != key) {
			assert.NotEqual(t, wanted[a.Proxy], key, "%+v", a)
		}
		wanted[a.Proxy] = key
	}
}

func TestDeleteAndRecreate(t *testing.T) {
	f, read := real(t)
	require.NoError(t, f.Complete(t.Context()))
	before, err := f.get(t.Context(), "vm-001")
	require.NoError(t, err)
	require.True(t, f.Do(t.Context(), "vm-001", plan.ActRecreate, 1))
	after, err := f.get(t.Context(), "vm-001")
	require.NoError(t, err)
	assert.NotEqual(t, before.UID, after.UID)

	require.True(t, f.Do(t.Context(), "pod-001", plan.ActDelete, 1))
	gone, err := f.get(t.Context(), "pod-001")
	require.NoError(t, err)
	require.Nil(t, gone)
	require.Eventually(t, func() bool { return f.NotReady()["pod-001"] == "missing" }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, f.Complete(t.Context()))

	verbs := []history.Verb{}
	for _, a := range read().Acts[8:] {
		verbs = append(verbs, a.Verb)
	}
	assert.Equal(t, []history.Verb{history.Delete, history.Recreate, history.Delete, history.Create}, verbs)
}

func TestOneUserAtATime(t *testing.T) {
	f, _ := real(t)
	require.NoError(t, f.Complete(t.Context()))
	f.busy["pod-000"].Lock()
	defer f.busy["pod-000"].Unlock()
	assert.False(t, f.Do(t.Context(), "pod-000", plan.ActDelete, 1))
}

func TestMend(t *testing.T) {
	f, read := real(t)
	require.NoError(t, f.Complete(t.Context()))
	p, err := f.get(t.Context(), "vm-002")
	require.NoError(t, err)
	p.Status.Phase = v1alpha1.PhaseFailed
	p.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionProvisioned, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPermanentError, LastTransitionTime: metav1.Now(),
	}}
	u, err := fromProxy(p)
	require.NoError(t, err)
	u.Object["status"] = map[string]any{"phase": "Failed", "conditions": []any{map[string]any{
		"type": "Provisioned", "status": "False", "reason": "PermanentError", "message": "no such image", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}
	_, err = f.objects.UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(f.Latched()) == 1 }, 10*time.Second, 10*time.Millisecond)
	assert.Equal(t, 1, f.Mend(t.Context()))
	acts := read().Acts
	last := acts[len(acts)-1]
	assert.Equal(t, "default/vm-002", last.Proxy)
	assert.True(t, last.Replaces)
	assert.Equal(t, "Failed (PermanentError: no such image)", f.NotReady()["vm-002"])
}

func TestNobodyThere(t *testing.T) {
	f, read := open(t, &rest.Config{Host: "http://127.0.0.1:1"})
	assert.False(t, f.Do(t.Context(), "pod-000", plan.ActDelete, 1))
	require.Error(t, f.create(t.Context(), "pod-000", false))
	acts := read().Acts
	require.Len(t, acts, 1)
	assert.True(t, acts[0].Failed)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, f.Complete(ctx), context.DeadlineExceeded)
}

func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		err               error
		failed, uncertain bool
	}{
		{nil, false, false},
		{fmt.Errorf("dial: %w", syscall.ECONNREFUSED), true, false},
		{errors.New("EOF"), false, true},
		{apierrors.NewBadRequest("x"), true, false},
		{apierrors.NewInternalError(errors.New("x")), false, true},
	} {
		failed, uncertain := Outcome(tt.err)
		assert.Equal(t, tt.failed, failed, "%v", tt.err)
		assert.Equal(t, tt.uncertain, uncertain, "%v", tt.err)
	}
}

func TestSwitchTellsTheTruth(t *testing.T) {
	f, read := open(t, &rest.Config{Host: "http://127.0.0.1:1"})
	for _, mode := range []external.Mode{external.Refuse, external.Serve, external.Hang, external.Junk, external.Serve} {
		require.NoError(t, f.Switch("external-001", mode))
	}
	var states []history.State
	addrs := map[string]bool{}
	for _, truth := range read().Truths {
		assert.Equal(t, "default/external-001", truth.Proxy)
		addrs[truth.Endpoint] = true
		states = append(states, truth.State)
	}
	assert.Len(t, addrs, 2, "both of its addresses")
	assert.Equal(t, []history.State{
		history.Dead, history.Dead, history.Alive, history.Alive, history.Hanging, history.Hanging,
		history.Lying, history.Lying, history.Alive, history.Alive,
	}, states)
}

var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }
