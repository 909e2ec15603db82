package manifests_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/stretchr/testify/require"
)

// recorder stands between a process and the API server and writes down what
// the one asks of the other. The process's own token goes through: the API
// server's RBAC decides.
type recorder struct {
	server *httptest.Server

	mu       sync.Mutex
	requests []access
	refused  []string
}

func newRecorder(t *testing.T, c *cluster) *recorder {
	t.Helper()
	target, err := url.Parse(c.URL())
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(c.RESTConfig().CAData))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	rec := &recorder{}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ModifyResponse: func(r *http.Response) error {
			rec.note(r)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	rec.server = httptest.NewTLSServer(proxy)
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(rec.server.Close)
	t.Cleanup(rec.server.CloseClientConnections)
	return rec
}

func (rec *recorder) note(r *http.Response) {
	a, ok := parseRequest(r.Request)
	if !ok {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if !slices.Contains(rec.requests, a) {
		rec.requests = append(rec.requests, a)
	}
	if r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusUnauthorized {
		rec.refused = append(rec.refused, fmt.Sprintf("%d %s", r.StatusCode, a))
	}
}

// seen returns each kind of request, once, and those that were refused.
func (rec *recorder) seen() (requests []access, refused []string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return slices.Clone(rec.requests), slices.Clone(rec.refused)
}

func (rec *recorder) has(want access) bool {
	requests, _ := rec.seen()
	return slices.ContainsFunc(requests, want.covers)
}

// kubeconfig is one for an account of ours, by way of the recorder.
func (rec *recorder) kubeconfig(t *testing.T, c *cluster, account string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	token, err := c.Typed.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	require.NoError(t, err)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rec.server.Certificate().Raw})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: %s}}]
current-context: c
`, rec.server.URL, base64.StdEncoding.EncodeToString(ca), token.Status.Token), 0o600))
	return path
}
