package webhooks

import (
	"encoding/json"
	"fmt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// secretKind is how hook requests key Secrets.
const secretKind = "Secret.v1"

// CloudInit is the user data of a Proxy, or the reason why nobody knows it.
type CloudInit struct {
	// Content is the user data. It may come from a Secret: it goes into the
	// spec hash and nowhere else.
	Content string
	// Problem says what is wrong and what to do, "" when nothing is.
	Problem string
}

// resolveCloudInit finds the user data of a Proxy in its spec or among the
// related Secrets. secretsOn is whether the customize hook asks for them.
func resolveCloudInit(proxy *v1alpha1.Proxy, related metacontroller.Objects, secretsOn bool) CloudInit {
	ci := proxy.Spec.CloudInit
	switch {
	case ci == nil:
		return CloudInit{}
	case ci.SecretRef == nil:
		return CloudInit{Content: ci.Inline}
	case !secretsOn:
		return CloudInit{Problem: "cloudInit.secretRef is switched off, since it makes Metacontroller watch Secrets in all namespaces: " +
			"start webhooks with --cloud-init-secrets and install the component that lets Metacontroller read Secrets, or use cloudInit.inline"}
	}
	return fromSecret(proxy.Namespace, *ci.SecretRef, related)
}

func fromSecret(namespace string, ref v1alpha1.SecretKeyRef, related metacontroller.Objects) CloudInit {
	name := namespace + "/" + ref.Name
	raw, found := related[secretKind][name]
	if !found {
		return CloudInit{Problem: fmt.Sprintf("secret %s of cloudInit.secretRef was not found: create it with the label %s: %q and the key %q",
			name, v1alpha1.LabelCloudInit, v1alpha1.ValueTrue, ref.Key)}
	}
	var secret struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Data map[string][]byte `json:"data"`
	}
	// The decoder's error is left out: it may quote the Secret.
	if json.Unmarshal(raw, &secret) != nil {
		return CloudInit{Problem: fmt.Sprintf("secret %s of cloudInit.secretRef is not readable as a Secret", name)}
	}
	if secret.Metadata.Labels[v1alpha1.LabelCloudInit] != v1alpha1.ValueTrue {
		return CloudInit{Problem: fmt.Sprintf("secret %s of cloudInit.secretRef does not count without its label: kubectl label secret -n %s %s %s=%s",
			name, namespace, ref.Name, v1alpha1.LabelCloudInit, v1alpha1.ValueTrue)}
	}
	content, found := secret.Data[ref.Key]
	if !found || len(content) == 0 {
		return CloudInit{Problem: fmt.Sprintf("secret %s of cloudInit.secretRef has no key %q, or an empty one: put the user data there", name, ref.Key)}
	}
	return CloudInit{Content: string(content)}
}

// related names the Secret that a Proxy's spec refers to. Metacontroller caches
// the answer by UID and generation, so that only the spec may matter.
func related(proxy *v1alpha1.Proxy, secretsOn bool) *metacontroller.CustomizeResponse {
	resp := &metacontroller.CustomizeResponse{RelatedResources: []metacontroller.RelatedResourceRule{}}
	ci := proxy.Spec.CloudInit
	if !secretsOn || ci == nil || ci.SecretRef == nil {
		return resp
	}
	resp.RelatedResources = append(resp.RelatedResources, metacontroller.RelatedResourceRule{
		APIVersion: "v1",
		Resource:   "secrets",
		Namespace:  proxy.Namespace,
		Names:      []string{ci.SecretRef.Name},
	})
	return resp
}
