// Package credentials reads the username and password that a Proxy's
// credentialsRef names, and keeps them from being printed.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// ErrRefused means that the Secret is missing, unlabelled or incomplete, or that no
// Secret can have that name. A user has to act; a retry helps only after other errors.
var ErrRefused = errors.New("credentials refused")

// Credentials are a username and a password for one proxy. They print as
// "[redacted]" in every format and log.
type Credentials struct {
	username, password string
}

// New returns the credentials for that username and password.
func New(username, password string) Credentials {
	return Credentials{username: username, password: password}
}

// Userinfo is the form in which they go into a proxy URL.
func (c Credentials) Userinfo() *url.Userinfo { return url.UserPassword(c.username, c.password) }

// String hides the content.
func (Credentials) String() string { return "[redacted]" }

// GoString hides the content from %#v.
func (Credentials) GoString() string { return "[redacted]" }

// Format hides the content from every verb.
func (Credentials) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// MarshalJSON hides the content.
func (Credentials) MarshalJSON() ([]byte, error) { return []byte(`"[redacted]"`), nil }

// LogValue hides the content from slog.
func (Credentials) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// Reader gets single Secrets: without list and watch, a Role with the verb get is enough.
type Reader struct {
	client kubernetes.Interface
}

// NewReader returns a Reader on client.
func NewReader(client kubernetes.Interface) *Reader { return &Reader{client: client} }

// Read returns the credentials in the Secret namespace/name. The error unwraps
// to ErrRefused when the Secret does not exist, cannot exist by its name, is not
// labelled crawl.example.com/proxy-credentials: "true", or lacks a key.
func (r *Reader) Read(ctx context.Context, namespace, name string) (Credentials, error) {
	if wrong := validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return Credentials{}, fmt.Errorf("no secret can be called %q: %w", name, ErrRefused)
	}
	s, err := r.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Credentials{}, fmt.Errorf("secret %s/%s does not exist: %w", namespace, name, ErrRefused)
	case err != nil:
		return Credentials{}, fmt.Errorf("get secret %s/%s: %w", namespace, name, err)
	}
	return fromSecret(s)
}

func fromSecret(s *corev1.Secret) (Credentials, error) {
	if s.Labels[v1alpha1.LabelCredentials] != v1alpha1.ValueTrue {
		return Credentials{}, fmt.Errorf("secret %s/%s lacks the label %s: %q: %w",
			s.Namespace, s.Name, v1alpha1.LabelCredentials, v1alpha1.ValueTrue, ErrRefused)
	}
	for _, key := range []string{"username", "password"} {
		if len(s.Data[key]) == 0 {
			return Credentials{}, fmt.Errorf("secret %s/%s has no key %q: %w", s.Namespace, s.Name, key, ErrRefused)
		}
	}
	return New(string(s.Data["username"]), string(s.Data["password"])), nil
}
