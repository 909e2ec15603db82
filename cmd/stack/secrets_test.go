package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream/upstreamtest"
)

// size of a fleet: sharers are Proxies that share one Secret, loners do not use it. Two more have
// special faults.
type size struct {
	sharers, loners int
}

// offered is how many are leasable at most: all but the one whose Secret is rejected.
func (s size) offered() int { return s.sharers + s.loners + 1 }

// budget is the replacement budget of the Managed ones.
func (s size) budget() int { return (s.sharers + s.loners + 1) / 5 }

func TestSharedSecretOnTheRealMetacontroller(t *testing.T) {
	program := upstreamtest.Program(t)
	for _, strategy := range upstream.Strategies() {
		t.Run(string(strategy), func(t *testing.T) {
			cfg := stack.Config{Metacontroller: program, ApplyStrategy: strategy, CloudInitSecrets: true}
			shareAndRotate(newRig(t).run(cfg), size{sharers: 50, loners: 5})
		})
	}
}

// shareAndRotate rotates a Secret that real proxies share. Unavailability stays within the
// replacement budget, and the Secret's content appears nowhere.
func shareAndRotate(r *running, n size) {
	t := r.t
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

// fleet creates the Proxies, with an External one and one whose Secret lacks the label.
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

// lookEvery is far shorter than the time between changes, and far below discovery's rate limit for
// a token.
const lookEvery = 5 * time.Millisecond

// watchOffers polls the leasable Proxies. The returned function stops it, and returns how many of
// the initial ones were missing at once, and which were missing at any time.
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
					r.t.Errorf("list discovery's proxies: %v", err)
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

// hunt searches for secrets in places where they must not be.
type hunt struct {
	*running
	canaries []string
}

func newHunt(r *running) *hunt { return &hunt{running: r} }

// canary returns a new secret to search for.
func (h *hunt) canary() string {
	c := "canary" + rand.Text()
	h.canaries = append(h.canaries, c)
	return c
}

// findNothing searches every file of the stack except the API server's store, all objects except
// the Secrets themselves, and all metrics.
func (h *hunt) findNothing() {
	h.t.Helper()
	require.True(h.t, h.in(h.objects("v1", "secrets")), "they are there, and can be found")
	for _, resource := range []string{"v1/pods", "v1/events", v1alpha1.GroupVersion().String() + "/proxies", v1alpha1.GroupVersion().String() + "/proxyprobes", "coordination.k8s.io/v1/leases"} {
		at := strings.LastIndex(resource, "/")
		text := h.objects(resource[:at], resource[at+1:])
		assert.NotEmpty(h.t, text, resource)
		assert.False(h.t, h.in(text), "a secret is in %s", resource)
	}
	for name, url := range h.stack.MetricsURLs() {
		text, err := get(h.t.Context(), url, "")
		if assert.NoError(h.t, err, name) {
			assert.Contains(h.t, string(text), "# TYPE", name)
			assert.False(h.t, h.in(string(text)), "a secret is in the metrics of %s", name)
		}
	}
	text, err := h.core.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(h.t.Context())
	require.NoError(h.t, err)
	assert.False(h.t, h.in(string(text)), "a secret is in the metrics of the API server")
	h.findNothingInFiles()
}

// objects are all objects of a resource, as text.
func (h *hunt) objects(apiVersion, resource string) string {
	h.t.Helper()
	gv, err := schema.ParseGroupVersion(apiVersion)
	require.NoError(h.t, err)
	list, err := h.api.Resource(gv.WithResource(resource)).List(h.t.Context(), metav1.ListOptions{})
	require.NoError(h.t, err)
	text, err := json.Marshal(list)
	require.NoError(h.t, err)
	return string(text)
}

func (h *hunt) findNothingInFiles() {
	h.t.Helper()
	logs := 0
	store := filepath.Join(h.stack.Folder(), "controlplane", "etcd")
	require.DirExists(h.t, store)
	err := filepath.WalkDir(h.stack.Folder(), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // deleted meanwhile
		case path == store:
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && filepath.Ext(path) == ".log" && len(text) > 0 {
			logs++
		}
		assert.False(h.t, h.in(string(text)), "a secret is in %s", path)
		return nil
	})
	require.NoError(h.t, err)
	assert.Greater(h.t, logs, 5, "there were logs to look into")
}

// in reports whether a canary is in text, as it is or encoded as in a Secret.
func (h *hunt) in(text string) bool {
	for _, c := range h.canaries {
		encoded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(c)), "=")
		if strings.Contains(text, c) || strings.Contains(text, encoded[:len(encoded)-1]) {
			return true
		}
	}
	return false
}
