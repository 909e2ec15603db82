package hooktest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	secretName = "boot"
	secretKey  = "user-data"
)

// sharing returns Proxies that take their cloud-init from one Secret.
func sharing(n int) []*v1alpha1.Proxy {
	var proxies []*v1alpha1.Proxy
	for i := range n {
		proxies = append(proxies, WithSecret(Managed(fmt.Sprintf("sharing-%d", i), provider), secretName, secretKey))
	}
	return proxies
}

// A rotated Secret replaces the Proxies that use it and no others, within the replacement budget.
func TestRotatedSecretReplacesWithinTheBudget(t *testing.T) {
	const users, others = 50, 10
	const budget = (users + others) / 5
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			l.Drive(d, release{providers: providers, secrets: true, timing: quick(driftPoll)}.hooks(t).Handler(nil))
			l.PlayKubelet()
			l.PlayProber()
			l.CreateSecret(secretName, secretKey, "one", true)
			ready := l.AwaitReady(users + others)
			l.CreateProxies(append(sharing(users), fleet(others)...)...)
			<-ready

			before := l.Proxies()
			seen := l.watchReady(before)
			l.Patch(SecretResource(), secretName, `{"stringData":{"`+secretKey+`":"two"}}`)
			l.Eventually("all are replaced and Ready", func() bool { return replaced(before, l.Proxies()) == users })

			worst, left := seen()
			assert.LessOrEqual(t, worst, budget, "not Ready at once")
			assert.Greater(t, worst, 1, "it would take for ever one by one")
			assert.Len(t, left, users, "own else was ever anything but Ready")
			for name := range left {
				assert.True(t, strings.HasPrefix(name, "sharing-"), name)
			}
		})
	}
}

// replaced counts the Proxies that are Ready on another instance, created with another hash; all of
// them, or none counts.
func replaced(before, now map[string]*v1alpha1.Proxy) int {
	n := 0
	for name, p := range now {
		old := before[name].Status
		switch {
		case p.Status.Phase != v1alpha1.PhaseReady:
			return 0
		case p.Status.InstanceID != old.InstanceID && p.Status.SpecHash != old.SpecHash:
			n++
		}
	}
	return n
}

// watchReady watches which of the Proxies, all Ready now, become unready. The returned function
// stops it and returns how many were unready at once, and which were unready at any time.
func (l *Lab) watchReady(all map[string]*v1alpha1.Proxy) func() (worst int, left map[string]bool) {
	l.t.Helper()
	var mu sync.Mutex
	worst, now, left := 0, map[string]bool{}, map[string]bool{}
	started := make(chan struct{}, len(all))
	l.watch(v1alpha1.ProxyResource(), func(obj *unstructured.Unstructured) {
		mu.Lock()
		defer mu.Unlock()
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		delete(now, obj.GetName())
		if phase != string(v1alpha1.PhaseReady) {
			now[obj.GetName()], left[obj.GetName()] = true, true
		}
		worst = max(worst, len(now))
		select {
		case started <- struct{}{}:
		default:
		}
	})
	for range all {
		<-started
	}
	return func() (int, map[string]bool) {
		mu.Lock()
		defer mu.Unlock()
		return worst, left
	}
}

// A Secret without the label is not read into a Proxy; labelling it is enough to fix the Proxy.
func TestUnlabelledSecretIsRejected(t *testing.T) {
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			l.Drive(d, release{providers: providers, secrets: true, timing: quick(driftPoll)}.hooks(t).Handler(nil))
			l.PlayKubelet()
			l.PlayProber()
			l.CreateSecret(secretName, secretKey, "one", false)
			l.CreateProxies(sharing(1)...)
			l.awaitCloudInitError("sharing-0", "kubectl label secret -n default boot crawl.example.com/cloud-init=true")
			assert.Zero(t, l.pods(), "no instance is made of half a spec")

			l.Patch(SecretResource(), secretName, `{"metadata":{"labels":{"`+v1alpha1.LabelCloudInit+`":"true"}}}`)
			l.Eventually("Ready", func() bool { return l.inPhase(v1alpha1.PhaseReady) == 1 })
			l.Patch(SecretResource(), secretName, `{"metadata":{"labels":null}}`)
			l.awaitCloudInitError("sharing-0", "does not count without its label")
			assert.Equal(t, 1, l.pods(), "what runs is left alone")
		})
	}
}

func (l *Lab) awaitCloudInitError(proxy, message string) {
	l.t.Helper()
	l.Eventually("CloudInitError: "+message, func() bool {
		c := meta.FindStatusCondition(l.Proxy(proxy).Status.Conditions, v1alpha1.ConditionProvisioned)
		return c != nil && c.Reason == v1alpha1.ReasonCloudInitError && strings.Contains(c.Message, message)
	})
}

func (l *Lab) pods() int {
	l.t.Helper()
	list, err := l.In(PodResource()).List(context.Background(), metav1.ListOptions{})
	require.NoError(l.t, err)
	return len(list.Items)
}

// Without --cloud-init-secrets no Secret is read, and the Proxy's condition contains what to do.
// With it, Secrets are watched, which shows that the test can fail.
func TestSecretsAreWatchedOnlyWithTheFlag(t *testing.T) {
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			hooks := NewSwitch(release{providers: providers, timing: quick(driftPoll)}.hooks(t).Handler(nil))
			const own = 1 // the API server's own
			l.Eventually("watches of other tests have ended", func() bool { return l.SecretWatches() == own })
			l.Drive(d, hooks)
			l.CreateSecret(secretName, secretKey, "one", true)
			l.CreateProxies(sharing(1)...)
			l.awaitCloudInitError("sharing-0", "--cloud-init-secrets")
			assert.Equal(t, own, l.SecretWatches())
			assert.Zero(t, l.pods())

			hooks.To(release{providers: providers, secrets: true, timing: quick(driftPoll)}.hooks(t).Handler(nil))
			// Metacontroller calls customize once per generation.
			l.Patch(v1alpha1.ProxyResource(), "sharing-0", `{"spec":{"maxLeases":7}}`)
			l.Eventually("a Pod, made with the Secret", func() bool { return l.pods() == 1 })
			assert.Equal(t, own+1, l.SecretWatches())
		})
	}
}
