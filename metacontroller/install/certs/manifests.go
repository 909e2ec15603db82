package certs

import (
	"crypto/x509"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
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

// render returns the content of every file.
func (m *material) render(opts Options) (map[string][]byte, error) {
	files := map[string][]byte{
		FileGitignore: []byte("*\n"),
		FileCACert:    encodeCertificates(m.current),
	}
	if len(m.previous) > 0 {
		files[FilePreviousCA] = encodeCertificates(m.previous)
	}
	resources := []string{FileToken}
	docs := map[string]any{FileToken: m.tokenSecret(opts), FilePatch: m.patch(opts)}
	if m.ours() {
		key, err := encodeKey(m.caKey)
		if err != nil {
			return nil, err
		}
		secret, err := m.tlsSecret(opts)
		if err != nil {
			return nil, err
		}
		files[FileCAKey] = key
		docs[FileTLS] = secret
		resources = append(resources, FileTLS)
	}
	docs[FileKustomization] = component(resources)
	for name, doc := range docs {
		content, err := yaml.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		files[name] = content
	}
	files[FileKustomization] = append([]byte(componentHeader), files[FileKustomization]...)
	return files, nil
}

func encodeCertificates(certs []*x509.Certificate) []byte {
	encoded, _ := cert.EncodeCertificates(certs...) // fails only on a nil writer
	return encoded
}

func component(resources []string) map[string]any {
	return map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1alpha1",
		"kind":       "Component",
		"resources":  resources,
		"patches":    []any{map[string]any{"path": FilePatch}},
	}
}

// secretManifest is a corev1.Secret without the fields that encode as null.
type secretManifest struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        secretMeta        `json:"metadata"`
	Type            corev1.SecretType `json:"type"`
	Data            map[string][]byte `json:"data"`
}

type secretMeta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels,omitempty"`
}

func newSecret(name, namespace string, kind corev1.SecretType, data map[string][]byte) secretManifest {
	return secretManifest{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		Metadata: secretMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "egress-proxies"}},
		Type:     kind,
		Data:     data,
	}
}

func (m *material) tlsSecret(opts Options) (secretManifest, error) {
	key, err := encodeKey(m.serverKey)
	if err != nil {
		return secretManifest{}, err
	}
	return newSecret(SecretTLS, opts.Namespace, corev1.SecretTypeTLS, map[string][]byte{
		corev1.TLSCertKey:       encodeCertificates([]*x509.Certificate{m.serverCert}),
		corev1.TLSPrivateKeyKey: key,
	}), nil
}

// tokenSecret has one constant key for webhooks and one key per token for
// Metacontroller. It keeps the previous token: until the patch is applied, a restart
// of Metacontroller reads it.
func (m *material) tokenSecret(opts Options) secretManifest {
	var accepted []byte
	data := map[string][]byte{}
	for _, token := range []string{m.token, m.previousToken} {
		if token != "" {
			accepted = append(accepted, token+"\n"...)
			data[tokenKey(token)] = []byte(token)
		}
	}
	data[KeyToken] = accepted
	return newSecret(SecretToken, opts.Namespace, corev1.SecretTypeOpaque, data)
}

// tokenKey is the key in the CompositeController's secretRef.
func tokenKey(token string) string { return KeyToken + "-" + tokenID(token) }

// patch is a merge patch of the CompositeController for kustomize and kubectl patch.
// One endpointConfigs entry serves all hooks; it does not apply to a hook with its own
// settings (Metacontroller 4.17).
func (m *material) patch(opts Options) map[string]any {
	endpoint := map[string]any{
		"host":     opts.Host(),
		"caBundle": map[string]any{"inline": string(encodeCertificates(m.bundle()))},
		"authorization": map[string]any{
			"type": "Bearer",
			"secretRef": map[string]any{
				"name":      SecretToken,
				"namespace": opts.Namespace,
				"key":       tokenKey(m.token),
			},
		},
	}
	return map[string]any{
		"apiVersion": metacontroller.ControllerAPIVersion,
		"kind":       metacontroller.ControllerKind,
		"metadata":   map[string]any{"name": metacontroller.ControllerName},
		"spec":       map[string]any{"endpointConfigs": []any{endpoint}},
	}
}
