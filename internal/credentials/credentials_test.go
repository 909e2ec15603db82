package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func TestCredentialsNeverPrint(t *testing.T) {
	const canary = "CANARY-7c1f"
	c := New(canary, canary)
	var out bytes.Buffer
	fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d", c, c, c, c, c, c, c)
	fmt.Fprintf(&out, "%v %+v", []Credentials{c}, struct{ C Credentials }{c})
	require.NoError(t, json.NewEncoder(&out).Encode(map[string]any{"c": c, "p": &c}))
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "c", c, "p", &c)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "c", c, "p", &c)
	assert.NotContains(t, out.String(), canary)
	assert.Contains(t, c.Userinfo().String(), canary, "the one way out")
}

func TestRead(t *testing.T) {
	labelled := map[string]string{v1alpha1.LabelCredentials: "true"}
	full := map[string][]byte{"username": []byte("u"), "password": []byte("p")}
	tests := map[string]struct {
		secret *corev1.Secret
		want   string
	}{
		"labelled and complete": {secret: secret(labelled, full)},
		"missing":               {want: "secret ns/creds does not exist"},
		"unlabelled":            {secret: secret(nil, full), want: `lacks the label crawl.example.com/proxy-credentials: "true"`},
		"no password":           {secret: secret(labelled, map[string][]byte{"username": []byte("u")}), want: `has no key "password"`},
		"a newline at the end":  {secret: secret(labelled, map[string][]byte{"username": []byte("u"), "password": []byte("p\n")}), want: "secret ns/creds: password ends with a newline; write the Secret from a file without one"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if tt.secret != nil {
				client = fake.NewClientset(tt.secret)
			}
			got, err := NewReader(client).Read(context.Background(), "ns", "creds")
			if tt.want == "" {
				require.NoError(t, err)
				assert.Equal(t, "u:p", got.Userinfo().String())
				return
			}
			assert.ErrorContains(t, err, tt.want)
			assert.ErrorIs(t, err, ErrRefused)
		})
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct{ name, username, password, want string }{
		{"an API key and no password", "key", "", ""},
		{"colons, spaces and other letters in the password", "user", " pa:ss wörd ", ""},
		{"a newline after the password", "user", "secret\n", "password ends with a newline"},
		{"a newline of Windows", "user", "secret\r\n", "password ends with a newline"},
		{"a newline after the username", "user\n", "secret", "username ends with a newline"},
		{"a newline alone", "user", "\n", "password ends with a newline"},
		{"two lines", "user", "sec\nret", "password contains a newline"},
		{"a carriage return", "user", "secret\r", "password contains a carriage return"},
		{"a tab", "us\ter", "secret", "username contains a tab"},
		{"a NUL", "user", "s\x00e", "password contains a NUL"},
		{"an escape", "user", "\x1b[A", "password contains the control character 0x1B"},
		{"a DEL", "user", "sec\x7f", "password contains the control character 0x7F"},
		{"UTF-8 with a byte order mark", "user", "\ufeffsecret", "password starts with a byte order mark"},
		{"UTF-16", "user", "\xff\xfes\x00", "password starts with a byte order mark"},
		{"no username", "", "token", "username is empty"},
		{"a colon in the username", "us:er", "secret", "username has a colon"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := New(tc.username, tc.password).Validate()
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrRefused)
			assert.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "sec")
		})
	}
}

// TestReadRefusesNamesThatNoSecretHas: the client would refuse them too, but
// with an error that looks worth another try, for ever.
func TestReadRefusesNamesThatNoSecretHas(t *testing.T) {
	client := fake.NewClientset()
	for _, name := range []string{"", ".", "..", "../login", "other/login", "Login", "a b", "x?y=z", "%00", "a\n"} {
		_, err := NewReader(client).Read(context.Background(), "ns", name)
		assert.ErrorIs(t, err, ErrRefused, "%q", name)
		assert.ErrorContains(t, err, "no secret can be called", "%q", name)
	}
	assert.Empty(t, client.Actions(), "the API server is not asked")
}

func secret(labels map[string]string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "creds", Labels: labels}, Data: data}
}

// FuzzSecret: whatever a Secret holds is refused, or comes out again of the proxy
// URL that crawlers are given.
func FuzzSecret(f *testing.F) {
	f.Add("true", []byte("u"), []byte("p"))
	f.Add("true", []byte("a:b@c/d?e#f%zz"), []byte("\x00\xff\r\n ü"))
	f.Add("false", []byte("u"), []byte("p"))
	f.Add("true", []byte(""), []byte("p"))
	f.Add("true", []byte("key"), []byte(""))
	f.Add("true", []byte("u"), []byte("p\n"))
	f.Fuzz(func(t *testing.T, label string, username, password []byte) {
		c, err := fromSecret(secret(map[string]string{v1alpha1.LabelCredentials: label}, map[string][]byte{"username": username, "password": password}))
		if err != nil {
			require.ErrorIs(t, err, ErrRefused)
			if len(password) > 8 {
				require.NotContains(t, err.Error(), string(password))
			}
			return
		}
		require.Equal(t, "true", label)
		require.NotContains(t, string(username), ":")
		require.False(t, bytes.ContainsAny(append(username, password...), "\x00\r\n\t\x7f"))
		again, err := url.Parse((&url.URL{Scheme: "http", User: c.Userinfo(), Host: "10.0.0.7:3128"}).String())
		require.NoError(t, err)
		require.Equal(t, "10.0.0.7:3128", again.Host)
		got, _ := again.User.Password()
		require.Equal(t, string(username), again.User.Username())
		require.Equal(t, string(password), got)
	})
}
