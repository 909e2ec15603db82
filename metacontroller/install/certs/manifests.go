package certs

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// The files of a folder.
const (
	// FileKustomization makes the folder a kustomize component.
	FileKustomization = "kustomization.yaml"
	// FilePatch gives the CompositeController its CA and token reference. It
	// holds no secret.
	FilePatch = "compositecontroller-patch.yaml"
	// FileTLS is the Secret with the server certificate.
	FileTLS = "webhooks-tls.yaml"
	// FileToken is the Secret with the bearer token.
	FileToken = "webhooks-token.yaml"
	// FileCACert is the authority's certificate, PEM.
	FileCACert = "ca.crt"
	// FilePreviousCA is the certificate of the previous authority, while it is
	// still trusted.
	FilePreviousCA = "ca-previous.crt"
	// FileCAKey signs server certificates. It is never applied to a cluster.
	FileCAKey = "ca.key"
	// FileGitignore keeps the folder out of Git.
	FileGitignore = ".gitignore"
)

const (
	// SecretTLS is the name of the Secret with tls.crt and tls.key.
	SecretTLS = "webhooks-tls"
	// SecretToken is the name of the Secret with the bearer token.
	SecretToken = "webhooks-token"
	// KeyToken is the key of SecretToken with all tokens that webhooks accepts,
	// one a line.
	KeyToken = "token"
)

// componentHeader also identifies a folder of ours.
const componentHeader = `# Written by certs; run it again rather than editing. The files beside this one
# hold private keys and a token.
`

// render returns the content of every file. The same material and options give the
// same bytes.
func (m *material) render(opts Options) files {
	out := files{FileGitignore: []byte("*\n"), FileCACert: encode(m.current)}
	if len(m.previous) > 0 {
		out[FilePreviousCA] = encode(m.previous)
	}
	resources := []string{FileToken}
	docs := map[string]any{FileToken: m.tokenSecret(opts), FilePatch: m.patch(opts)}
	if m.ca != nil {
		out[FileCAKey] = m.ca.keyPEM
		docs[FileTLS] = secret(SecretTLS, opts, corev1.SecretTypeTLS, map[string][]byte{
			corev1.TLSCertKey: m.server.certPEM, corev1.TLSPrivateKeyKey: m.server.keyPEM,
		})
		resources = append(resources, FileTLS)
	}
	docs[FileKustomization] = map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1alpha1",
		"kind":       "Component",
		"resources":  resources,
		"patches":    []any{map[string]any{"path": FilePatch}},
	}
	for name, doc := range docs {
		out[name], _ = yaml.Marshal(doc) // maps of strings and bytes: cannot fail
	}
	out[FileKustomization] = append([]byte(componentHeader), out[FileKustomization]...)
	return out
}

func secret(name string, opts Options, kind corev1.SecretType, data map[string][]byte) map[string]any {
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Secret",
		"metadata":   map[string]any{"name": name, "namespace": opts.Namespace, "labels": map[string]string{"app.kubernetes.io/part-of": "egress-proxies"}},
		"type":       kind,
		"data":       data,
	}
}

// tokenSecret has one constant key for webhooks and one key per token for
// Metacontroller. It keeps the previous token: until the patch is applied, a restart
// of Metacontroller reads it.
func (m *material) tokenSecret(opts Options) map[string]any {
	data := map[string][]byte{KeyToken: []byte(m.token + "\n"), tokenKey(m.token): []byte(m.token)}
	if m.previousToken != "" {
		data[KeyToken] = []byte(m.token + "\n" + m.previousToken + "\n")
		data[tokenKey(m.previousToken)] = []byte(m.previousToken)
	}
	return secret(SecretToken, opts, corev1.SecretTypeOpaque, data)
}

// tokenKey is the key in the CompositeController's secretRef.
func tokenKey(token string) string { return KeyToken + "-" + tokenID(token) }

// patch is a merge patch of the CompositeController for kustomize and kubectl patch.
// One endpointConfigs entry serves all hooks; it does not apply to a hook with its own
// settings (Metacontroller 4.17).
func (m *material) patch(opts Options) map[string]any {
	endpoint := map[string]any{
		"host":     opts.Host(),
		"caBundle": map[string]any{"inline": string(encode(m.bundle()))},
		"authorization": map[string]any{
			"type":      "Bearer",
			"secretRef": map[string]any{"name": SecretToken, "namespace": opts.Namespace, "key": tokenKey(m.token)},
		},
	}
	return map[string]any{
		"apiVersion": metacontroller.ControllerAPIVersion,
		"kind":       metacontroller.ControllerKind,
		"metadata":   map[string]any{"name": metacontroller.ControllerName},
		"spec":       map[string]any{"endpointConfigs": []any{endpoint}},
	}
}
