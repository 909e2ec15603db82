package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// runMain set to "1" turns the test program into the process under test.
const runMain = "DISCOVERY_TEST_RUN_MAIN"

// server is the one real API server of this package's tests.
var server controlplanetest.Shared

func TestMain(m *testing.M) {
	if os.Getenv(runMain) == "1" {
		main()
	}
	// For the whole package, since t.Setenv excludes t.Parallel.
	if err := os.Setenv(tokenVariable, token); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// command runs the process under test with this environment and no other.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{runMain + "=1"}, env...)
	return cmd
}

func TestProcessExitCodes(t *testing.T) {
	help := command(t, nil, "--help")
	out, err := help.CombinedOutput()
	require.NoError(t, err, "help is no failure")
	for _, want := range []string{"DISCOVERY_TOKEN", "--verdict-max-age", "[PX_VERDICT_MAX_AGE]", "(default 5m0s)", "(default :8090)", "(default :8083)"} {
		assert.Contains(t, string(out), want)
	}

	bare := command(t, nil)
	out, err = bare.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Contains(t, string(out), "discovery: DISCOVERY_TOKEN is empty: set it to the bearer token that crawlers send, name a file of tokens with --tokens-file, or disable authentication with --insecure")
}

func TestProcessEndsOnSIGTERM(t *testing.T) {
	t.Parallel()
	logs := &programtest.Output{}
	cmd := command(t, []string{"DISCOVERY_TOKEN=long-enough-token"}, "--drain", "0", "--addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0", "--kubeconfig", programtest.DeadKubeconfig(t))
	cmd.Stdout, cmd.Stderr = logs, logs
	require.NoError(t, cmd.Start())
	logs.Address(t, "API listening")
	logs.Address(t, "ops endpoint listening")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, cmd.Wait(), logs.String())
}

const (
	token          = "CANARY-token-of-the-process"
	canaryPassword = "CANARY-password"
	// patience is for how long things may take on a machine that is busy with other
	// tests.
	patience = time.Minute
)

// running is a discovery process within the test.
type running struct {
	*testing.T
	api, ops string
}

// start runs the process until the test ends.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	args = append([]string{"--addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0", "--drain", "0"}, args...)
	p := programtest.Start(t, run, args...)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		assert.NoError(t, p.Stop())
		assert.NotContains(t, p.String(), "CANARY")
	})
	return &running{T: t, api: "http://" + p.Address(t, "API listening"), ops: p.Ops(t)}
}

// ask returns the status, the body's members and the Retry-After header.
func (r *running) ask(method, path, body string) (int, map[string]any, http.Header) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.api+path, strings.NewReader(body))
	require.NoError(r, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(r, err)
	members := map[string]any{}
	if len(b) > 0 {
		require.NoError(r, json.Unmarshal(b, &members), string(b))
	}
	return resp.StatusCode, members, resp.Header
}

func (r *running) opsGet(path string) (int, string) {
	r.Helper()
	return programtest.Get(r, r.ops+path)
}

// cluster is a namespace on a real API server.
type cluster struct {
	*testing.T
	kubeconfig string
	namespace  string
	objects    dynamic.Interface
	clients    *kubernetes.Clientset
}

func realCluster(t *testing.T) *cluster {
	t.Helper()
	cp := server.Get(t)
	require.NoError(t, controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...))
	objects, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	clients, err := kubernetes.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	ns, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "discovery-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return &cluster{T: t, kubeconfig: cp.Kubeconfig(), namespace: ns.Name, objects: objects, clients: clients}
}

// readyProxy makes an External Proxy that the hook has found Ready.
func (c *cluster) readyProxy(name, secret string) {
	c.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
		"metadata": map[string]any{"namespace": c.namespace, "name": name},
		"spec": map[string]any{
			"mode": "External", "endpoint": map[string]any{"host": "proxy.example", "port": int64(8080)},
			"attributes": map[string]any{"geo": "eu"}, "credentialsRef": map[string]any{"name": secret},
		},
	}}
	res := c.objects.Resource(v1alpha1.ProxyResource()).Namespace(c.namespace)
	created, err := res.Create(c.Context(), u, metav1.CreateOptions{})
	require.NoError(c, err)
	created.Object["status"] = map[string]any{
		"phase": "Ready", "ip": "proxy.example", "port": int64(8080), "instanceID": "external-" + name, "observedGeneration": created.GetGeneration(),
	}
	_, err = res.UpdateStatus(c.Context(), created, metav1.UpdateOptions{})
	require.NoError(c, err)
}

func (c *cluster) secret(name string, labels map[string]string) {
	c.Helper()
	_, err := c.clients.CoreV1().Secrets(c.namespace).Create(c.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		StringData: map[string]string{"username": "crawler", "password": canaryPassword},
	}, metav1.CreateOptions{})
	require.NoError(c, err)
}

// renew writes the Lease of the one prober shard.
func (c *cluster) renew(at time.Time) {
	c.Helper()
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "prober-0-of-1", Labels: map[string]string{v1alpha1.LabelProberShard: "0-of-1"}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(at))},
	}
	leases := c.clients.CoordinationV1().Leases(c.namespace)
	old, err := leases.Get(c.Context(), l.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(c.Context(), l, metav1.CreateOptions{})
		require.NoError(c, err)
		return
	}
	require.NoError(c, err)
	l.ResourceVersion = old.ResourceVersion
	_, err = leases.Update(c.Context(), l, metav1.UpdateOptions{})
	require.NoError(c, err)
}

// TestProcessLeasesFromARealCluster walks the job of the process: a Proxy, its
// Secret and the prober's Lease come in by watch, and leases go out by HTTP.
func TestProcessLeasesFromARealCluster(t *testing.T) {
	t.Parallel()
	c := realCluster(t)
	c.secret("login", map[string]string{v1alpha1.LabelCredentials: "true"})
	c.renew(time.Now())
	r := start(t, "--kubeconfig", c.kubeconfig, "--namespace", c.namespace, "--system-namespace", c.namespace)
	require.Eventually(t, func() bool { code, _ := r.opsGet("/readyz"); return code == http.StatusOK }, patience, 10*time.Millisecond)
	code, body, _ := r.ask(http.MethodGet, "/v1/proxies", "")
	assert.Equal(t, http.StatusOK, code)
	assert.EqualValues(t, 0, body["count"])

	c.readyProxy("a", "login")
	var grant map[string]any
	require.Eventually(t, func() bool {
		code, grant, _ = r.ask(http.MethodPost, "/v1/leases", `{"selector":{"geo":"eu"},"target":"example.com","ttlSeconds":60}`)
		return code == http.StatusCreated
	}, patience, 10*time.Millisecond)
	assert.Equal(t, "http://crawler:"+canaryPassword+"@proxy.example:8080", grant["proxyURL"])

	_, metrics := r.opsGet("/metrics")
	assert.Contains(t, metrics, "proxy_operator_leases_active 1")
	assert.Contains(t, metrics, `proxy_operator_proxies{phase="Ready"} 1`)
	assert.NotContains(t, metrics, "CANARY")

	id := grant["leaseID"].(string)
	code, _, _ = r.ask(http.MethodPost, "/v1/leases/"+id+"/report", `{"result":"rate_limited"}`)
	assert.Equal(t, http.StatusNoContent, code)
	code, body, header := r.ask(http.MethodPost, "/v1/leases", `{"target":"example.com"}`)
	assert.Equal(t, http.StatusConflict, code)
	assert.EqualValues(t, 1, body["inCooldown"])
	assert.NotEmpty(t, header.Get("Retry-After"))
	for range 2 {
		code, _, _ = r.ask(http.MethodDelete, "/v1/leases/"+id, "")
		assert.Equal(t, http.StatusNoContent, code)
	}

	c.renew(time.Now().Add(-time.Hour))
	require.Eventually(t, func() bool {
		code, body, _ = r.ask(http.MethodPost, "/v1/leases", `{"ttlSeconds":1}`)
		return code == http.StatusConflict && body["stale"] == 1.0
	}, patience, 10*time.Millisecond, "a prober that stopped is not believed")
	assert.Contains(t, body["message"], "prober shard 0/1 has not renewed its Lease for 1h0m")
	_, metrics = r.opsGet("/metrics")
	assert.Contains(t, metrics, "proxy_operator_proxies_verdict_stale 1")
	assert.Contains(t, metrics, `proxy_operator_prober_shards{state="lapsed"} 1`)
	assert.Contains(t, metrics, `proxy_operator_prober_shards{state="alive"} 0`)
}

// probe writes the prober's verdict on a Proxy's instance.
func (c *cluster) probe(name, verdict string) {
	c.Helper()
	probes := c.objects.Resource(v1alpha1.ProxyProbeResource()).Namespace(c.namespace)
	u, err := probes.Get(c.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		proxy, err := c.objects.Resource(v1alpha1.ProxyResource()).Namespace(c.namespace).Get(c.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		u, err = probes.Create(c.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "crawl.example.com/v1alpha1", "kind": "ProxyProbe",
			"metadata": map[string]any{"namespace": c.namespace, "name": name, "ownerReferences": []any{map[string]any{
				"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "name": name, "uid": string(proxy.GetUID()), "controller": true,
			}}},
			"spec": map[string]any{"instanceID": "external-" + name, "host": "proxy.example", "port": int64(8080)},
		}}, metav1.CreateOptions{})
		require.NoError(c, err)
	} else {
		require.NoError(c, err)
	}
	u.Object["status"] = map[string]any{"instanceID": "external-" + name, "verdict": verdict, "reason": "DialFailed", "lastProbeTime": time.Now().UTC().Format(time.RFC3339)}
	_, err = probes.UpdateStatus(c.Context(), u, metav1.UpdateOptions{})
	require.NoError(c, err)
}

// The prober has an Unhealthy verdict, and no hook writes it into the Proxy's status.
func TestProcessAppliesVerdictsBeforeTheStatus(t *testing.T) {
	t.Parallel()
	c := realCluster(t)
	c.secret("login", map[string]string{v1alpha1.LabelCredentials: "true"})
	c.renew(time.Now())
	c.readyProxy("a", "login")
	r := start(t, "--kubeconfig", c.kubeconfig, "--namespace", c.namespace, "--system-namespace", c.namespace)
	var code int
	var body map[string]any
	leases := func(want int) func() bool {
		return func() bool {
			code, body, _ = r.ask(http.MethodPost, "/v1/leases", `{"target":"example.com","ttlSeconds":60}`)
			if code == http.StatusCreated && want != code {
				r.ask(http.MethodDelete, "/v1/leases/"+body["leaseID"].(string), "")
			}
			return code == want
		}
	}
	require.Eventually(t, leases(http.StatusCreated), patience, 10*time.Millisecond)
	held := "/v1/leases/" + body["leaseID"].(string)
	_, list, header := r.ask(http.MethodGet, "/v1/proxies", "")
	require.Equal(t, true, list["proxies"].([]any)[0].(map[string]any)["leasable"])

	c.probe("a", "Unhealthy")
	require.Eventually(t, leases(http.StatusConflict), patience, 10*time.Millisecond)
	assert.EqualValues(t, 1, body["unhealthy"], body)
	_, list, after := r.ask(http.MethodGet, "/v1/proxies?healthy=false&phase=Unhealthy", "")
	require.EqualValues(t, 1, list["count"])
	listed := list["proxies"].([]any)[0].(map[string]any)
	assert.Equal(t, false, listed["leasable"])
	assert.Equal(t, "Unhealthy", listed["notLeasableReason"])
	assert.Equal(t, "DialFailed", listed["reason"])
	assert.Contains(t, listed["notLeasableMessage"], "by its ProxyProbe")
	assert.NotEqual(t, header.Get("Etag"), after.Get("Etag"))
	_, metrics := r.opsGet("/metrics")
	assert.Contains(t, metrics, "proxy_operator_proxies_status_behind 1")
	assert.Contains(t, metrics, `proxy_operator_proxies{phase="Unhealthy"} 1`)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		path := held
		if method == http.MethodPost {
			path += "/renew"
		}
		code, _, _ = r.ask(method, path, "")
		assert.Equal(t, http.StatusOK, code, "a lease that is held runs on, as on any unhealthy proxy")
	}

	c.probe("a", "Healthy")
	require.Eventually(t, leases(http.StatusCreated), patience, 10*time.Millisecond)
	_, metrics = r.opsGet("/metrics")
	assert.Contains(t, metrics, "proxy_operator_proxies_status_behind 0")
}

func TestProcessRefusesSecretsThatAreNotMeantForIt(t *testing.T) {
	t.Parallel()
	c := realCluster(t)
	c.secret("private", nil)
	c.renew(time.Now())
	c.readyProxy("a", "private")
	r := start(t, "--kubeconfig", c.kubeconfig, "--namespace", c.namespace, "--system-namespace", c.namespace)
	var body map[string]any
	require.Eventually(t, func() bool {
		_, body, _ = r.ask(http.MethodPost, "/v1/leases", `{}`)
		return body["error"] == "credentials_unavailable"
	}, patience, 10*time.Millisecond)
	assert.Contains(t, body["message"], `lacks the label crawl.example.com/proxy-credentials: "true"`)
}

func TestProcessWithoutAnAPIServer(t *testing.T) {
	r := start(t, "--kubeconfig", programtest.DeadKubeconfig(t))
	code, body, header := r.ask(http.MethodPost, "/v1/leases", `{}`)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Equal(t, "not_ready", body["error"])
	assert.Equal(t, "2", header.Get("Retry-After"))
	code, _, _ = r.ask(http.MethodGet, "/healthz", "")
	assert.Equal(t, http.StatusOK, code)
	require.Eventually(t, func() bool {
		code, text := r.opsGet("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "no list of proxies yet") && strings.Contains(text, "connection refused")
	}, patience, 10*time.Millisecond)
	code, _ = r.opsGet("/livez")
	assert.Equal(t, http.StatusOK, code)
}

func TestProcessReportsAnAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, flag := range []string{"--addr", "--ops-addr"} {
		args := []string{"--kubeconfig", programtest.DeadKubeconfig(t), "--drain", "0", "--addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0", flag, taken.Addr().String()}
		err := run(t.Context(), args, io.Discard)
		assert.ErrorContains(t, err, flag+" "+taken.Addr().String())
		assert.ErrorContains(t, err, "address already in use")
	}
	err = run(t.Context(), []string{"--kubeconfig", "/no/such/file"}, io.Discard)
	assert.ErrorContains(t, err, "--kubeconfig /no/such/file")
}

// TestProcessTakesTokensFromAFile: a reader reads and does not lease, the change
// of the file counts without a restart, and a bad file does not stop the process.
func TestProcessTakesTokensFromAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write := func(value, scope string) {
		require.NoError(t, os.WriteFile(path+".new", []byte("tokens: [{name: board, token: "+value+", scopes: ["+scope+"]}]"), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	write(token, "read")
	logs := &programtest.Output{}
	cmd := command(t, nil, "--tokens-file", path, "--kubeconfig", programtest.DeadKubeconfig(t), "--drain", "0", "--addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = logs, logs
	require.NoError(t, cmd.Start())
	r := &running{T: t, api: "http://" + logs.Address(t, "API listening"), ops: "http://" + logs.Address(t, "ops endpoint listening")}
	code, body, _ := r.ask(http.MethodPost, "/v1/leases", `{}`)
	assert.Equal(t, http.StatusForbidden, code)
	assert.Contains(t, body["message"], "the token board has only read")
	write(token, "lease")
	require.Eventually(t, func() bool {
		code, _, _ = r.ask(http.MethodPost, "/v1/leases", `{}`)
		return code == http.StatusServiceUnavailable
	}, patience, 50*time.Millisecond)
	_, metrics := r.opsGet("/metrics")
	assert.Contains(t, metrics, "proxy_operator_tokens_file_refused 0")

	write(token, "root")
	out, err := command(t, nil, "--tokens-file", path, "--kubeconfig", programtest.DeadKubeconfig(t)).CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, strings.ReplaceAll(string(out), `\"`, `"`), "--tokens-file: tokens file "+path+`: token "board": unknown scope "root"`)
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, cmd.Wait(), logs.String())
	assert.NotContains(t, logs.String(), "CANARY")
}

func TestProcessWarnsWithoutAuthentication(t *testing.T) {
	t.Setenv("DISCOVERY_TOKEN", "")
	p := programtest.Start(t, run, "--insecure", "--drain", "0", "--kubeconfig", programtest.DeadKubeconfig(t), "--addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0")
	p.Address(t, "API listening")
	p.Address(t, "ops endpoint listening")
	require.NoError(t, p.Stop())
	assert.Contains(t, p.String(), `"level":"WARN","msg":"INSECURE: DISCOVERY_TOKEN is empty`)
}
