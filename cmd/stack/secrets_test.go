package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream/upstreamtest"
)

// size of a fleet: sharers are Proxies that share one Secret, loners have
// nothing to do with it. Two more have troubles of their own.
type size struct {
	sharers, loners int
}

// offered is how many can be leased at most: all but the one that is refused its
// Secret.
func (s size) offered() int { return s.sharers + s.loners + 1 }

// budget is how many of the Managed ones may be replaced at once.
func (s size) budget() int { return (s.sharers + s.loners + 1) / 5 }

// A small fleet, which takes less than a minute; hooktest has fifty.
func TestSharedSecretOnTheStandIn(t *testing.T) {
	shareAndRotate(t, stack.Config{}, size{sharers: 12, loners: 3})
}

func TestSharedSecretOnTheRealMetacontroller(t *testing.T) {
	program := upstreamtest.Program(t)
	for _, strategy := range upstream.Strategies() {
		t.Run(string(strategy), func(t *testing.T) {
			shareAndRotate(t, stack.Config{Metacontroller: program, ApplyStrategy: strategy}, size{sharers: 50, loners: 5})
		})
	}
}

// shareAndRotate has real proxies share a Secret and rotates it. Crawlers must
// hardly notice, and nobody must ever see what is in it.
func shareAndRotate(t *testing.T, cfg stack.Config, n size) {
	cfg.CloudInitSecrets = true
	r := newRig(t).run(cfg)
	hunt := newHunt(r)
	r.secret("boot", v1alpha1.LabelCloudInit, map[string]string{"user-data": hunt.canary()})
	r.secret("private", "", map[string]string{"user-data": hunt.canary()})
	r.secret("login", v1alpha1.LabelCredentials, map[string]string{"username": "crawler", "password": hunt.canary()})
	r.fleet(n)
	r.eventually("all can be leased", func() bool { return len(r.offered()) == n.offered() })
	r.requireRefusal("curious", "kubectl label secret")

	before := r.statuses()
	watch := r.watchOffers()
	r.patchSecret("boot", hunt.canary())
	r.eventually("all that share the Secret are replaced", func() bool { return replacedAll(before, r.statuses()) })
	r.eventually("all can be leased again", func() bool { return len(r.offered()) == n.offered() })
	worst, missed := watch()
	assert.LessOrEqual(t, worst, n.budget(), "out of service at once")
	assert.Positive(t, worst)
	for name := range missed {
		assert.True(t, strings.HasPrefix(name, "sharer-"), "%s had nothing to do with it", name)
	}
	hunt.findNothing()
}

// fleet creates the Proxies, an External one and one with a Secret that was not
// meant for it among them.
func (r *running) fleet(n size) {
	r.t.Helper()
	for i := range n.sharers {
		r.managed(fmt.Sprintf("sharer-%d", i), "boot")
	}
	for i := range n.loners {
		r.managed(fmt.Sprintf("loner-%d", i), "")
	}
	r.managed("curious", "private")
	r.create("elsewhere", &v1alpha1.Proxy{Spec: v1alpha1.ProxySpec{
		Mode:           v1alpha1.ModeExternal,
		Endpoint:       &v1alpha1.Endpoint{Host: r.facts.ExternalHost, Port: r.facts.ExternalPort},
		CredentialsRef: &v1alpha1.CredentialsRef{Name: "login"},
	}})
}

func (r *running) requireRefusal(proxy, message string) {
	r.t.Helper()
	c := meta.FindStatusCondition(r.statuses()[proxy].Conditions, v1alpha1.ConditionProvisioned)
	require.NotNil(r.t, c)
	assert.Equal(r.t, v1alpha1.ReasonCloudInitError, c.Reason)
	assert.Contains(r.t, c.Message, message)
}

func (r *running) patchSecret(name, value string) {
	r.t.Helper()
	patch := fmt.Appendf(nil, `{"stringData":{"user-data":%q}}`, value)
	_, err := r.core.CoreV1().Secrets(r.facts.Namespace).Patch(r.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(r.t, err)
}

func (r *running) offered() map[string]bool {
	r.t.Helper()
	offered, err := r.leasable(r.t.Context())
	require.NoError(r.t, err)
	return offered
}

// replacedAll reports whether exactly the sharers run on other instances.
func replacedAll(before, now map[string]v1alpha1.ProxyStatus) bool {
	for name, status := range now {
		replaced := status.InstanceID != before[name].InstanceID
		if replaced != strings.HasPrefix(name, "sharer-") || name != "curious" && status.Phase != v1alpha1.PhaseReady {
			return false
		}
	}
	return true
}

// lookEvery is far more often than offers change, and well below the rate at
// which discovery refuses a token.
const lookEvery = 5 * time.Millisecond

// watchOffers asks discovery all the time what it would lease. The function that
// it returns ends that, and says how many of those that were on offer in the
// beginning were not at once, and which were missed at some time.
func (r *running) watchOffers() func() (worst int, missed map[string]bool) {
	r.t.Helper()
	all := r.offered()
	ctx, cancel := context.WithCancel(r.t.Context())
	worst, missed := 0, map[string]bool{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			now, err := r.leasable(ctx)
			if err != nil {
				if ctx.Err() == nil {
					r.t.Errorf("ask discovery: %v", err)
				}
				return
			}
			gone := maps.Clone(all)
			maps.DeleteFunc(gone, func(name string, _ bool) bool { return now[name] })
			worst = max(worst, len(gone))
			maps.Copy(missed, gone)
			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
		}
	})
	return func() (int, map[string]bool) {
		cancel()
		wg.Wait()
		return worst, missed
	}
}
