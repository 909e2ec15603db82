// Package credentials reads the username and password that a Proxy's
// credentialsRef names, and keeps them from being printed.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// ErrRefused means that the Secret is missing, unlabelled, incomplete or not fit for
// Basic authentication, or that no Secret can have that name. A user has to act; a retry
// helps only after other errors.
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

// Validate returns an error that wraps ErrRefused if Basic authentication (RFC 7617) or
// the HTTP clients of crawlers cannot carry the credentials. The password may be empty:
// some vendors take an API key as the username.
func (c Credentials) Validate() error {
	if c.username == "" {
		return fmt.Errorf("username is empty, and HTTP clients send no credentials without one: %w", ErrRefused)
	}
	if strings.Contains(c.username, ":") {
		return fmt.Errorf("username has a colon, which ends a username in Basic authentication: %w", ErrRefused)
	}
	for _, field := range []struct{ name, value string }{{"username", c.username}, {"password", c.password}} {
		if flaw := flawOf(field.value); flaw != "" {
			return fmt.Errorf("%s %s: %w", field.name, flaw, ErrRefused)
		}
	}
	return nil
}

// flawOf names the control character or byte order mark in s that Basic authentication
// forbids, "" for none. Most come from the file that kubectl read.
func flawOf(s string) string {
	at := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
	switch {
	case strings.HasSuffix(s, "\n"):
		return "ends with a newline; write the Secret from a file without one (printf %s, not echo) or with --from-literal"
	case strings.HasPrefix(s, "\ufeff"), strings.HasPrefix(s, "\xff\xfe"), strings.HasPrefix(s, "\xfe\xff"):
		return "starts with a byte order mark; save the file as UTF-8 without one"
	case at >= 0:
		return "contains " + controlName(s[at]) + ", which Basic authentication forbids; remove it from the Secret"
	}
	return ""
}

func controlName(c byte) string {
	switch c {
	case 0:
		return "a NUL"
	case '\t':
		return "a tab"
	case '\n':
		return "a newline"
	case '\r':
		return "a carriage return"
	}
	return fmt.Sprintf("the control character 0x%02X", c)
}

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
// labelled crawl.example.com/proxy-credentials: "true", lacks a key, or fails Validate.
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
		if _, there := s.Data[key]; !there {
			return Credentials{}, fmt.Errorf("secret %s/%s has no key %q: %w", s.Namespace, s.Name, key, ErrRefused)
		}
	}
	c := New(string(s.Data["username"]), string(s.Data["password"]))
	if err := c.Validate(); err != nil {
		return Credentials{}, fmt.Errorf("secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return c, nil
}
