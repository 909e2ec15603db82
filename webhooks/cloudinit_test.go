package webhooks

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

func secretRefProxy() *v1alpha1.Proxy {
	p := managedProxy()
	p.Spec.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: "boot", Key: "user-data"}}
	return p
}

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
	inline := managedProxy()
	inline.Spec.CloudInit = &v1alpha1.CloudInit{Inline: "#cloud-config"}
	const bad = `{"metadata":{"labels":{"crawl.example.com/cloud-init":"true"}},"data":{"user-data":"CANARY not base64"}}`

	for name, tt := range map[string]struct {
		proxy   *v1alpha1.Proxy
		off     bool
		secrets map[string]json.RawMessage
		content string
		problem []string
	}{
		"none":              {proxy: managedProxy()},
		"none, switch off":  {proxy: managedProxy(), off: true},
		"inline":            {proxy: inline, content: "#cloud-config"},
		"inline, off":       {proxy: inline, off: true, content: "#cloud-config"},
		"secret":            {proxy: secretRefProxy(), secrets: secrets(t, bootSecret("#!/bin/sh")), content: "#!/bin/sh"},
		"secret, off":       {proxy: secretRefProxy(), off: true, secrets: secrets(t, bootSecret("x")), problem: []string{"--cloud-init-secrets", "cloudInit.inline"}},
		"missing":           {proxy: secretRefProxy(), problem: []string{"crawl/boot", "was not found", v1alpha1.LabelCloudInit, `"user-data"`}},
		"unlabelled":        {proxy: secretRefProxy(), secrets: secrets(t, relabelled), problem: []string{"kubectl label secret -n crawl boot crawl.example.com/cloud-init=true"}},
		"other key":         {proxy: secretRefProxy(), secrets: secrets(t, otherKey), problem: []string{`no key "user-data"`}},
		"empty":             {proxy: secretRefProxy(), secrets: secrets(t, bootSecret("")), problem: []string{`no key "user-data", or an empty one`}},
		"unreadable":        {proxy: secretRefProxy(), secrets: map[string]json.RawMessage{"crawl/boot": []byte(bad)}, problem: []string{"not readable"}},
		"another namespace": {proxy: secretRefProxy(), secrets: map[string]json.RawMessage{"other/boot": mustJSON(t, bootSecret("x"))}, problem: []string{"was not found"}},
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
	inline := managedProxy()
	inline.Spec.CloudInit = &v1alpha1.CloudInit{Inline: "x"}
	for name, tt := range map[string]struct {
		proxy *v1alpha1.Proxy
		on    bool
		want  []metacontroller.RelatedResourceRule
	}{
		"secretRef":              {secretRefProxy(), true, rule},
		"secretRef, switch off":  {secretRefProxy(), false, none},
		"inline":                 {inline, true, none},
		"no cloud-init":          {managedProxy(), true, none},
		"External":               {externalProxy(), true, none},
		"External with leftover": {leftover(), true, rule},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, related(tt.proxy, tt.on).RelatedResources)
		})
	}
}

// leftover is what the CRD refuses; the answer is harmless.
func leftover() *v1alpha1.Proxy {
	p := externalProxy()
	p.Spec.CloudInit = secretRefProxy().Spec.CloudInit
	return p
}
