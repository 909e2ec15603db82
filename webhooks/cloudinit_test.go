package webhooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func bootSecret(content string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "boot", Namespace: "crawl", Labels: map[string]string{v1alpha1.LabelCloudInit: "true"}},
		Data:       map[string][]byte{"user-data": []byte(content)},
	}
}

func TestResolveCloudInit(t *testing.T) {
	relabelled := bootSecret("x")
	relabelled.Labels[v1alpha1.LabelCloudInit] = "yes"
	otherKey := bootSecret("x")
	otherKey.Data = map[string][]byte{"userdata": []byte("x")}
	inline := proxytest.Managed()
	inline.Spec.CloudInit = &v1alpha1.CloudInit{Inline: "#cloud-config"}
	const bad = `{"metadata":{"labels":{"crawl.example.com/cloud-init":"true"}},"data":{"user-data":"CANARY not base64"}}`

	for name, tt := range map[string]struct {
		proxy   *v1alpha1.Proxy
		off     bool
		secrets map[string]json.RawMessage
		content string
		problem []string
	}{
		"none":              {proxy: proxytest.Managed()},
		"none, switch off":  {proxy: proxytest.Managed(), off: true},
		"inline":            {proxy: inline, content: "#cloud-config"},
		"inline, off":       {proxy: inline, off: true, content: "#cloud-config"},
		"secret":            {proxy: proxytest.SecretRef(), secrets: secrets(t, bootSecret("#!/bin/sh")), content: "#!/bin/sh"},
		"secret, off":       {proxy: proxytest.SecretRef(), off: true, secrets: secrets(t, bootSecret("x")), problem: []string{"--cloud-init-secrets", "cloudInit.inline"}},
		"missing":           {proxy: proxytest.SecretRef(), problem: []string{"crawl/boot", "was not found", v1alpha1.LabelCloudInit, `"user-data"`}},
		"unlabelled":        {proxy: proxytest.SecretRef(), secrets: secrets(t, relabelled), problem: []string{"kubectl label secret -n crawl boot crawl.example.com/cloud-init=true"}},
		"other key":         {proxy: proxytest.SecretRef(), secrets: secrets(t, otherKey), problem: []string{`no key "user-data"`}},
		"empty":             {proxy: proxytest.SecretRef(), secrets: secrets(t, bootSecret("")), problem: []string{`no key "user-data", or an empty one`}},
		"unreadable":        {proxy: proxytest.SecretRef(), secrets: map[string]json.RawMessage{"crawl/boot": []byte(bad)}, problem: []string{"not readable"}},
		"another namespace": {proxy: proxytest.SecretRef(), secrets: map[string]json.RawMessage{"other/boot": mustJSON(t, bootSecret("x"))}, problem: []string{"was not found"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := resolveCloudInit(tt.proxy, metacontroller.Objects{secretKind: tt.secrets}, !tt.off)
			assert.Equal(t, tt.content, got.Content)
			assert.Equal(t, len(tt.problem) > 0, got.Problem != "", got.Problem)
			for _, want := range tt.problem {
				assert.Contains(t, got.Problem, want)
			}
			assert.NotContains(t, got.Problem, "CANARY")
		})
	}
}

func secrets(t *testing.T, all ...*corev1.Secret) map[string]json.RawMessage {
	t.Helper()
	out := map[string]json.RawMessage{}
	for _, s := range all {
		out[s.Namespace+"/"+s.Name] = mustJSON(t, s)
	}
	return out
}

func TestRelated(t *testing.T) {
	rule := []metacontroller.RelatedResourceRule{{APIVersion: "v1", Resource: "secrets", Namespace: "crawl", Names: []string{"boot"}}}
	none := []metacontroller.RelatedResourceRule{}
	inline := proxytest.Managed()
	inline.Spec.CloudInit = &v1alpha1.CloudInit{Inline: "x"}
	for name, tt := range map[string]struct {
		proxy *v1alpha1.Proxy
		on    bool
		want  []metacontroller.RelatedResourceRule
	}{
		"secretRef":              {proxytest.SecretRef(), true, rule},
		"secretRef, switch off":  {proxytest.SecretRef(), false, none},
		"inline":                 {inline, true, none},
		"no cloud-init":          {proxytest.Managed(), true, none},
		"External":               {proxytest.External(), true, none},
		"External with leftover": {leftover(), true, rule},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, related(tt.proxy, tt.on).RelatedResources)
		})
	}
}

// leftover is what the CRD refuses; the answer is harmless.
func leftover() *v1alpha1.Proxy {
	p := proxytest.External()
	p.Spec.CloudInit = proxytest.SecretRef().Spec.CloudInit
	return p
}

// provisioned is the condition of that name in a world's status.
func (w *world) provisioned(t *testing.T) metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(w.proxy.Status.Conditions, v1alpha1.ConditionProvisioned)
	require.NotNil(t, c)
	return *c
}

func TestSecretsOff(t *testing.T) {
	h := New(testOptions())
	require.JSONEq(t, `{"relatedResources":[]}`, string(answerTo(t, h, "customize", request{proxy: proxytest.SecretRef()}.customizeBody(t))),
		"nothing makes Metacontroller watch Secrets")

	w := &world{proxy: proxytest.SecretRef(), secrets: []*corev1.Secret{bootSecret("#!/bin/sh")}}
	w.sync(t, h)
	require.Nil(t, w.pod)
	require.Equal(t, v1alpha1.PhaseFailed, w.proxy.Status.Phase)
	require.Equal(t, v1alpha1.ReasonCloudInitError, w.provisioned(t).Reason)
	require.Contains(t, w.provisioned(t).Message, "--cloud-init-secrets", "it says how to switch it on")

	on := fixtureHooks()
	w.until(t, on, "Ready", w.leasable)
	pod := w.pod.UID
	for range 3 {
		w.round(t, h)
		require.True(t, w.leasable(), "switched off again, what runs is left alone")
		require.Equal(t, pod, w.pod.UID)
		require.Equal(t, v1alpha1.ReasonCloudInitError, w.provisioned(t).Reason)
	}
}

func TestSecretWithoutItsLabelIsRefused(t *testing.T) {
	h := fixtureHooks()
	secret := bootSecret("#!/bin/sh")
	w := &world{proxy: proxytest.SecretRef(), secrets: []*corev1.Secret{secret}}
	secret.Labels = nil
	w.sync(t, h)
	require.Nil(t, w.pod)
	require.Equal(t, v1alpha1.ReasonCloudInitError, w.provisioned(t).Reason)
	require.Contains(t, w.provisioned(t).Message, "kubectl label secret -n crawl boot crawl.example.com/cloud-init=true")

	secret.Labels = map[string]string{v1alpha1.LabelCloudInit: v1alpha1.ValueTrue}
	w.until(t, h, "Ready", w.leasable)
	secret.Labels, secret.Data["user-data"] = nil, []byte("rotated, and without its label")
	w.round(t, h)
	require.True(t, w.leasable(), "the running instance is left alone")
	require.Equal(t, 1, w.pods)
}

// A rotation replaces exactly the instances that were made with the key that
// changed.
func TestSecretRotationReplacesExactlyItsUsers(t *testing.T) {
	o := testOptions()
	o.CloudInitSecrets, o.MaxReplacing = true, intstr.FromString("100%")
	h := New(o)
	boot, other := bootSecret("v1"), bootSecret("v1")
	boot.Data["second"] = []byte("v1")
	other.Name = "other"
	with := func(secret, key string) *v1alpha1.Proxy {
		p := proxytest.SecretRef()
		p.Spec.CloudInit.SecretRef = &v1alpha1.SecretKeyRef{Name: secret, Key: key}
		return p
	}
	inline := proxytest.Managed()
	inline.Spec.CloudInit = &v1alpha1.CloudInit{Inline: "v1"}
	fleet := map[string]*world{
		"user":           {proxy: with("boot", "user-data"), secrets: []*corev1.Secret{boot}},
		"another user":   {proxy: with("boot", "user-data"), secrets: []*corev1.Secret{boot}},
		"another key":    {proxy: with("boot", "second"), secrets: []*corev1.Secret{boot}},
		"another Secret": {proxy: with("other", "user-data"), secrets: []*corev1.Secret{other}},
		"inline":         {proxy: inline},
		"none":           {proxy: proxytest.Managed()},
	}
	hashes := map[string]string{}
	for name, w := range fleet {
		w.proxy.UID = types.UID(name)
		w.until(t, h, "Ready", w.leasable)
		hashes[name] = w.proxy.Status.SpecHash
	}
	boot.Data["user-data"] = []byte("v2")
	for name, w := range fleet {
		for range 6 {
			w.round(t, h)
		}
		require.True(t, w.leasable(), name)
		replaced := name == "user" || name == "another user"
		assert.Equal(t, replaced, w.pods == 2, "%s: %d Pods", name, w.pods)
		assert.Equal(t, replaced, w.proxy.Status.SpecHash != hashes[name], name)
	}
}

// Fifty Proxies share a Secret. When it is rotated they are replaced ten at a
// time at most; the others serve on and can be leased.
func TestRotationOfASharedSecretKeepsToTheBudget(t *testing.T) {
	const size, limit = 50, 10
	h, secret := fixtureHooks(), bootSecret("v1")
	fleet := readyFleet(t, h, size, proxytest.SecretRef, secret)
	secret.Data["user-data"] = []byte("v2")

	chance, most, replaced := rand.New(rand.NewPCG(50, 10)), 0, 0
	for range 200 {
		for _, i := range chance.Perm(size) { // events come in any order, and kubelets take their time
			fleet[i].sync(t, h)
			fleet[i].offersOnlyWhatIsThere(t)
			if chance.IntN(2) == 0 {
				fleet[i].kubelet()
				fleet[i].prober()
			}
			away := count(fleet, func(w *world) bool { return !w.leasable() })
			require.LessOrEqual(t, away, limit)
			most = max(most, away)
		}
		if replaced = count(fleet, func(w *world) bool { return w.pods == 2 && w.leasable() }); replaced == size {
			break
		}
	}
	require.Equal(t, size, replaced, "all of them in the end")
	require.Equal(t, limit, most, "the budget is used")
	for _, w := range fleet {
		w.sync(t, h) // the last ones are now seen to be Ready
	}
	require.Zero(t, h.budget.states()["pods"].underWay)
}

func count(fleet []*world, is func(w *world) bool) (n int) {
	for _, w := range fleet {
		if is(w) {
			n++
		}
	}
	return n
}

// Through a whole life with a rotation, the Secret's content is nowhere but in
// the request.
func TestCanaryThroughARotation(t *testing.T) {
	o := testOptions()
	var everything bytes.Buffer
	reg := prometheus.NewRegistry()
	o.CloudInitSecrets, o.Registry = true, reg
	o.Log = slog.New(slog.NewTextHandler(&everything, &slog.HandlerOptions{Level: slog.LevelDebug}))
	recorder := &fakeRecorder{}
	o.Events = recorder
	h, secret := New(o), bootSecret("CANARY-one")
	w := &world{proxy: proxytest.SecretRef(), secrets: []*corev1.Secret{secret}}
	live := func() {
		for range 6 {
			w.round(t, h)
			everything.Write(w.answer)
			everything.Write(answerTo(t, h, "customize", request{proxy: w.proxy}.customizeBody(t)))
		}
	}
	live()
	secret.Data["user-data"] = []byte("CANARY-two")
	live()
	require.Equal(t, 2, w.pods)
	delete(secret.Data, "user-data")
	secret.Data["other"] = []byte("CANARY-three")
	live()
	w.finalizing = true
	live()
	require.True(t, w.gone)

	rec := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	everything.Write(rec.Body.Bytes())
	for _, e := range recorder.events {
		fmt.Fprintf(&everything, "%+v\n", e)
	}
	require.Contains(t, everything.String(), "the content of Secret boot (spec.cloudInit.secretRef) has changed")
	require.Contains(t, everything.String(), "proxy_operator_")
	require.Contains(t, everything.String(), "child left out")
	for _, canary := range []string{"CANARY", string(mustJSON(t, []byte("CANARY-one"))[1:9])} {
		require.NotContains(t, everything.String(), canary)
	}
}
