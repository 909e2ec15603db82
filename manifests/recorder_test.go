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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
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

// measured is a row of the table in docs/capacity.md: process, and what it needs
// for 1,000 and for 10,000 proxies.
var measured = regexp.MustCompile("(?m)^\\| `(webhooks|discovery|cloud|prober)` \\|[^|]*\\| ([^|]*) \\| ([^|]*) \\|")

var need = regexp.MustCompile(`^(\d+) m.*, (\d+) MB$`)

// needs reads such as "60 m at 91/s, 52 MB"; 0 where nothing was measured.
func needs(t *testing.T, cell string) (milliCPU, bytes int64) {
	t.Helper()
	m := need.FindStringSubmatch(cell)
	if m == nil {
		return 0, 0
	}
	milliCPU, err := strconv.ParseInt(m[1], 10, 64)
	require.NoError(t, err)
	megabytes, err := strconv.ParseInt(m[2], 10, 64)
	require.NoError(t, err)
	return milliCPU, megabytes * 1e6
}

// Requests are no less than what 1,000 proxies were measured to need, and limits
// of memory leave room for 10,000. Bursts may take what is free of the CPU: the
// request has to cover what a process does all the time, the first row of each.
func TestRequestsAreMeasured(t *testing.T) {
	page, err := os.ReadFile("../docs/capacity.md")
	require.NoError(t, err)
	all := renderAll(t)["gcp"]
	seen := map[string]bool{}
	for _, row := range measured.FindAllStringSubmatch(string(page), -1) {
		process := row[1]
		workload := map[bool]string{true: "webhooks", false: process}[process == "cloud"]
		resources := all.container(t, workload, process).Resources
		cpu, memory := needs(t, row[2])
		_, most := needs(t, row[3])
		if !seen[process] {
			assert.GreaterOrEqual(t, resources.Requests.Cpu().MilliValue(), cpu, process)
		}
		seen[process] = true
		assert.GreaterOrEqual(t, resources.Requests.Memory().Value(), memory, process)
		assert.Greater(t, resources.Limits.Memory().Value(), max(memory, most)*3/2, process)
	}
	assert.Len(t, seen, 4, "a row for each process")
}

// assertDocumented scrapes a process that has done its work and wants every
// metric of ours on its page to be in docs/metrics.md, with type and labels.
func assertDocumented(t *testing.T, d *daemon) {
	t.Helper()
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	_, body := programtest.Get(t, "http://"+d.Address(t, "ops endpoint listening")+"/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(t, err)
	ours := 0
	for name, family := range families {
		if !strings.HasPrefix(name, "proxy_operator_") {
			continue
		}
		ours++
		row := rowOf(string(page), name)
		require.NotNil(t, row, "%s is not in docs/metrics.md", name)
		assert.Equal(t, strings.ToLower(family.GetType().String()), row[3], name)
		for _, label := range labelsOf(family) {
			assert.Contains(t, row[4], "`"+label+"`", name)
		}
	}
	assert.Greater(t, ours, 3)
}

// rowOf returns the cells of a metric's row, nil when there is none.
func rowOf(page, name string) []string {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| `"+name+"` |") {
			cells := strings.Split(line, "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			return cells
		}
	}
	return nil
}

func labelsOf(family *dto.MetricFamily) []string {
	var names []string
	for _, m := range family.GetMetric() {
		for _, pair := range m.GetLabel() {
			if !slices.Contains(names, pair.GetName()) {
				names = append(names, pair.GetName())
			}
		}
	}
	return names
}
