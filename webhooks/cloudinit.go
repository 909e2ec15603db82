package webhooks

import (
	"encoding/json"
	"fmt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// secretKind is the key of Secrets in hook requests.
const secretKind = "Secret.v1"

// resolveCloudInit returns the user data from a Proxy's spec or from the related
// Secrets. secretsOn: the customize hook requests them.
func resolveCloudInit(p *v1alpha1.Proxy, related metacontroller.Objects, secretsOn bool) proxy.CloudInit {
	ci := p.Spec.CloudInit
	switch {
	case ci == nil:
		return proxy.CloudInit{}
	case ci.SecretRef == nil:
		return proxy.CloudInit{Content: ci.Inline}
	case !secretsOn:
		return proxy.CloudInit{Problem: "cloudInit.secretRef is switched off, since it makes Metacontroller watch Secrets in all namespaces: " +
			"start webhooks with --cloud-init-secrets and install the component that lets Metacontroller read Secrets, or use cloudInit.inline"}
	}
	return fromSecret(p.Namespace, *ci.SecretRef, related)
}

func fromSecret(namespace string, ref v1alpha1.SecretKeyRef, related metacontroller.Objects) proxy.CloudInit {
	name := namespace + "/" + ref.Name
	raw, found := related[secretKind][name]
	if !found {
		return proxy.CloudInit{Problem: fmt.Sprintf("secret %s of cloudInit.secretRef was not found: create it with the label %s: %q and the key %q",
			name, v1alpha1.LabelCloudInit, v1alpha1.ValueTrue, ref.Key)}
	}
	var secret struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Data map[string][]byte `json:"data"`
	}
	// The decoder's error may quote the Secret, so it is left out.
	if json.Unmarshal(raw, &secret) != nil {
		return proxy.CloudInit{Problem: fmt.Sprintf("secret %s of cloudInit.secretRef is not readable as a Secret", name)}
	}
	if secret.Metadata.Labels[v1alpha1.LabelCloudInit] != v1alpha1.ValueTrue {
		return proxy.CloudInit{Problem: fmt.Sprintf("secret %s of cloudInit.secretRef does not count without its label: kubectl label secret -n %s %s %s=%s",
			name, namespace, ref.Name, v1alpha1.LabelCloudInit, v1alpha1.ValueTrue)}
	}
	content, found := secret.Data[ref.Key]
	if !found || len(content) == 0 {
		return proxy.CloudInit{Problem: fmt.Sprintf("secret %s of cloudInit.secretRef has no key %q, or an empty one: put the user data there", name, ref.Key)}
	}
	return proxy.CloudInit{Content: string(content)}
}

// related names the Secret that a Proxy's spec refers to. Metacontroller caches
// the answer by UID and generation, so it depends on the spec alone.
func related(p *v1alpha1.Proxy, secretsOn bool) *metacontroller.CustomizeResponse {
	resp := &metacontroller.CustomizeResponse{RelatedResources: []metacontroller.RelatedResourceRule{}}
	ci := p.Spec.CloudInit
	if !secretsOn || ci == nil || ci.SecretRef == nil {
		return resp
	}
	resp.RelatedResources = append(resp.RelatedResources, metacontroller.RelatedResourceRule{
		APIVersion: "v1",
		Resource:   "secrets",
		Namespace:  p.Namespace,
		Names:      []string{ci.SecretRef.Name},
	})
	return resp
}
