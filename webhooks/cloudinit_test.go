package webhooks

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
