package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is the time of the tests' clock.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// options for a folder that does not exist yet.
func options(t *testing.T) certs.Options {
	t.Helper()
	opts := certs.DefaultOptions()
	opts.Dir = filepath.Join(t.TempDir(), "tls")
	return opts
}

func ensure(t *testing.T, opts certs.Options, now time.Time) certs.Result {
	t.Helper()
	r, err := certs.Ensure(opts, now)
	require.NoError(t, err)
	return r
}

// with returns opts with another action.
func with(opts certs.Options, action certs.Action) certs.Options {
	opts.Action = action
	return opts
}

// snapshot returns the content of every file of a folder.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		require.NoError(t, err)
		files[entry.Name()] = string(content)
	}
	return files
}

func secret(t *testing.T, dir, name string) corev1.Secret {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	var s corev1.Secret
	require.NoError(t, yaml.UnmarshalStrict(content, &s))
	return s
}

// patch is the CompositeController patch as Metacontroller would read it.
type patch struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		EndpointConfigs []struct {
			Host     string `json:"host"`
			CABundle struct {
				Inline string `json:"inline"`
			} `json:"caBundle"`
			Authorization struct {
				Type      string `json:"type"`
				SecretRef struct {
					Name      string `json:"name"`
					Namespace string `json:"namespace"`
					Key       string `json:"key"`
				} `json:"secretRef"`
			} `json:"authorization"`
		} `json:"endpointConfigs"`
	} `json:"spec"`
}

func readPatch(t *testing.T, dir string) patch {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, certs.FilePatch))
	require.NoError(t, err)
	var p patch
	require.NoError(t, yaml.UnmarshalStrict(content, &p))
	require.Len(t, p.Spec.EndpointConfigs, 1)
	return p
}

func bundle(t *testing.T, dir string) string {
	t.Helper()
	return readPatch(t, dir).Spec.EndpointConfigs[0].CABundle.Inline
}

func accepted(t *testing.T, dir string) []string {
	t.Helper()
	return strings.Fields(string(secret(t, dir, certs.FileToken).Data[certs.KeyToken]))
}

// shown is the token that Metacontroller sends.
func shown(t *testing.T, dir string) string {
	t.Helper()
	ref := readPatch(t, dir).Spec.EndpointConfigs[0].Authorization.SecretRef
	token := secret(t, dir, certs.FileToken).Data[ref.Key]
	require.NotEmpty(t, token, ref.Key)
	return string(token)
}

func parsePEM(t *testing.T, content string) []*x509.Certificate {
	t.Helper()
	parsed, err := certs.ParseAuthorities([]byte(content))
	require.NoError(t, err)
	return parsed
}

func serverCert(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(secret(t, dir, certs.FileTLS).Data[corev1.TLSCertKey])
	require.NotNil(t, block)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}

// handshake calls a TLS server that has the Secret of one folder as a client
// that trusts a bundle, under a host name.
func handshake(t *testing.T, tlsSecret corev1.Secret, trusted, host string, now time.Time) error {
	t.Helper()
	pair, err := tls.X509KeyPair(tlsSecret.Data[corev1.TLSCertKey], tlsSecret.Data[corev1.TLSPrivateKeyKey])
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	srv.Config.ErrorLog = nil
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(trusted)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12, Time: func() time.Time { return now }}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get(srv.URL)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// secrets returns the secret content of a folder: keys and tokens, raw and encoded
// as in the manifests.
func secrets(t *testing.T, dir string) []string {
	t.Helper()
	found := accepted(t, dir)
	for _, key := range [][]byte{readOptional(t, dir, certs.FileCAKey), optionalKey(t, dir)} {
		if block, _ := pem.Decode(key); block != nil {
			found = append(found, string(block.Bytes), base64.StdEncoding.EncodeToString(block.Bytes)[:40], string(bytes.Split(key, []byte("\n"))[1]))
		}
	}
	for _, s := range found {
		if s != "" {
			found = append(found, base64.StdEncoding.EncodeToString([]byte(s)))
		}
	}
	return found
}

func readOptional(t *testing.T, dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return content
}

func optionalKey(t *testing.T, dir string) []byte {
	t.Helper()
	if readOptional(t, dir, certs.FileTLS) == nil {
		return nil
	}
	return secret(t, dir, certs.FileTLS).Data[corev1.TLSPrivateKeyKey]
}
