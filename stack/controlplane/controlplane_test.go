package controlplane

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
)

// realAssets skips when a build would be needed. It is controlplanetest.Assets,
// which this package cannot import.
func realAssets(t *testing.T) Assets {
	t.Helper()
	assets, err := Locate(t.Context())
	if errors.Is(err, ErrNotBuilt) && os.Getenv("PX_REQUIRE_ASSETS") != "1" {
		t.Skipf("needs a real API server: %v", err)
	}
	require.NoError(t, err)
	return assets
}

func startReal(t *testing.T, cfg Config) *ControlPlane {
	t.Helper()
	cfg.Assets, cfg.Log = realAssets(t), quiet()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "cp")
	}
	cp, err := Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cp.Stop()) })
	return cp
}

func clientOf(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return client
}

func TestControlPlane(t *testing.T) {
	cp := startReal(t, Config{Addr: "127.41.7.1"})

	t.Run("serves its kubeconfig", func(t *testing.T) { testKubeconfigWorks(t, cp) })
	t.Run("takes pods", func(t *testing.T) { testTakesPods(t, cp) })
	t.Run("refuses strangers", func(t *testing.T) { testRefusesStrangers(t, cp) })
	t.Run("listens on its address alone", func(t *testing.T) { testListensOnItsAddressAlone(t, cp) })
	t.Run("authorizes", func(t *testing.T) { testAuthorizes(t, cp) })
	t.Run("keeps its token out of logs", func(t *testing.T) { testNoTokenInLogs(t, cp) })
	t.Run("installs CRDs", func(t *testing.T) { testInstallCRDs(t, cp) })
	t.Run("lets another one run beside it", func(t *testing.T) { testAnotherBesideIt(t, cp) })
	t.Run("survives the death of either program", func(t *testing.T) { testRevives(t, cp) })
	t.Run("stops", func(t *testing.T) { testStop(t, cp) })
}

func testKubeconfigWorks(t *testing.T, cp *ControlPlane) {
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig())
	require.NoError(t, err)
	version, err := clientOf(t, cfg).Discovery().ServerVersion()
	require.NoError(t, err)
	assert.Equal(t, "1", version.Major)
	assert.NoError(t, cp.Err())
}

func testTakesPods(t *testing.T, cp *ControlPlane) {
	client := clientOf(t, cp.RESTConfig())
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{NodeName: "local", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.41.7.200", PodIPs: []corev1.PodIP{{IP: "127.41.7.200"}}}
	_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	assert.NoError(t, err, "a Pod may have an address in 127/8")

	_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{Containers: pod.Spec.Containers}}
	_, err = client.CoreV1().Pods("other").Create(t.Context(), pod, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "without its service account a namespace takes no Pods: %v", err)
	require.NoError(t, EnsureServiceAccount(t.Context(), client, "other"))
	require.NoError(t, EnsureServiceAccount(t.Context(), client, "other"), "again changes nothing")
	_, err = client.CoreV1().Pods("other").Create(t.Context(), pod, metav1.CreateOptions{})
	assert.NoError(t, err)
	assert.ErrorContains(t, EnsureServiceAccount(t.Context(), client, "not-there"), "not-there")
}

func testRefusesStrangers(t *testing.T, cp *ControlPlane) {
	cfg := cp.RESTConfig()
	cfg.BearerToken = ""
	_, err := clientOf(t, cfg).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsUnauthorized(err), "no token: %v", err)
	cfg.BearerToken = newToken()
	_, err = clientOf(t, cfg).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsUnauthorized(err), "wrong token: %v", err)

	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(cp.layout.authority))
	for _, port := range []int{cp.layout.etcdPort, cp.layout.peerPort} {
		conn, err := tls.Dial("tcp", cp.layout.hostPort(port), &tls.Config{RootCAs: pool})
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		assert.ErrorContains(t, err, "certificate required", "etcd must not talk to whoever finds its port")
		assert.NoError(t, conn.Close())
	}
}

func testNoTokenInLogs(t *testing.T, cp *ControlPlane) {
	require.NoError(t, filepath.WalkDir(cp.layout.dir, func(path string, _ fs.DirEntry, err error) error {
		require.NoError(t, err)
		if filepath.Ext(path) == ".log" {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.NotEmpty(t, content)
			assert.NotContains(t, string(content), cp.layout.token, path)
		}
		return nil
	}))
	for _, pid := range []int{cp.etcd.Current().PID(), cp.apiServer.Current().PID()} {
		args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		require.NoError(t, err)
		assert.NotContains(t, string(args), cp.layout.token)
	}
}

func testAnotherBesideIt(t *testing.T, cp *ControlPlane) {
	other := startReal(t, Config{Addr: "127.41.8.1", Durable: true})
	assert.NotEqual(t, cp.URL(), other.URL())
	cfg := other.RESTConfig()
	cfg.BearerToken = cp.RESTConfig().BearerToken
	_, err := clientOf(t, cfg).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsUnauthorized(err), "one's token is nothing to the other: %v", err)
	require.NoError(t, other.Stop())
	_, err = clientOf(t, cp.RESTConfig()).Discovery().ServerVersion()
	assert.NoError(t, err, "the first goes on when the second stops")
}

func testRevives(t *testing.T, cp *ControlPlane) {
	client := clientOf(t, cp.RESTConfig())
	for _, p := range cp.Parts() {
		before := p.Current().PID()
		require.ErrorContains(t, p.Start(), "still runs")
		require.NoError(t, p.Kill())
		require.NoError(t, p.Kill(), "again changes nothing")
		assert.False(t, alive(strconv.Itoa(before)))
		require.NoError(t, p.Start())
		p.Watch()
		require.NoError(t, cp.AwaitReady(t.Context()))
		assert.NotEqual(t, before, p.Current().PID())
		_, err := client.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{})
		require.NoError(t, err, "the same address, and the same data")
		require.NoError(t, cp.Err(), "a wanted end is no failure")
	}
}

func testStop(t *testing.T, cp *ControlPlane) {
	var callers sync.WaitGroup
	for range 3 {
		callers.Go(func() { assert.NoError(t, cp.Stop(), "at once and again is fine") })
	}
	callers.Wait()
	<-cp.Done()
	assert.NoError(t, cp.Err(), "being stopped is no error")
	for _, pid := range []int{cp.etcd.Current().PID(), cp.apiServer.Current().PID()} {
		assert.False(t, alive(strconv.Itoa(pid)))
	}
}

// A crash leaves data, and the folder can be used again.
func TestControlPlaneSurvivesItsFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cp")
	cp := startReal(t, Config{Dir: dir, Addr: "127.41.7.1"})
	client := clientOf(t, cp.RESTConfig())
	_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	require.NoError(t, cp.etcd.Current().Signal(syscall.SIGKILL))
	<-cp.Done()
	require.ErrorContains(t, cp.Err(), "etcd (pid ")
	require.ErrorContains(t, cp.Err(), "signal: killed")
	require.ErrorContains(t, cp.Err(), "etcd.log")
	require.NoError(t, cp.Stop())

	cp = startReal(t, Config{Dir: dir, Addr: "127.41.7.4"})
	_, err = clientOf(t, cp.RESTConfig()).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	assert.NoError(t, err)
}

func TestKilledStackLeavesNoProcess(t *testing.T) {
	realAssets(t)
	stack := exec.Command(os.Args[0])
	stack.Env = append(os.Environ(), roleEnv+"=stack", "PX_TEST_DIR="+filepath.Join(t.TempDir(), "cp"))
	out, err := stack.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, stack.Start())
	t.Cleanup(func() { _ = stack.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	fields := strings.Fields(line)
	require.Len(t, fields, 3, line)

	require.NoError(t, stack.Process.Kill())
	require.Error(t, stack.Wait())

	for _, pid := range fields[1:] {
		testwait.Eventually(t, "pid "+pid+" is gone", func() bool { return !alive(pid) })
	}
}

// brokenServer is an API server that runs body.
func brokenServer(t *testing.T, body string) Assets {
	t.Helper()
	assets := realAssets(t)
	assets.APIServer = filepath.Join(t.TempDir(), "kube-apiserver")
	writeScript(t, assets.APIServer, body)
	return assets
}

func TestStartReportsAServerThatEnds(t *testing.T) {
	for body, want := range map[string]string{
		"echo no luck >&2; exit 4": "exit status 4",
		"echo no luck; exit 0":     "exited with status 0",
	} {
		dir := filepath.Join(t.TempDir(), "cp")
		_, err := Start(t.Context(), Config{Dir: dir, Addr: "127.41.7.5", Assets: brokenServer(t, body), Log: quiet()})
		require.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "no luck")
		assert.NoError(t, os.RemoveAll(dir))
	}
}

func TestStartEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "cp")
	_, err := Start(ctx, Config{Dir: dir, Addr: "127.41.7.6", Assets: brokenServer(t, "exec sleep 300"), Log: quiet()})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "wait for /readyz")
	assert.ErrorContains(t, err, dir, "the logs' folder is named")
	assert.Empty(t, runningIn(t, dir), "nothing is left running")
}

func TestStartReportsWhatCannotBeExecuted(t *testing.T) {
	assets := realAssets(t)
	for _, broken := range []func(*Assets){
		func(a *Assets) { a.Etcd = "/no/such/etcd" },
		func(a *Assets) { a.APIServer = "/no/such/kube-apiserver" },
	} {
		a := assets
		broken(&a)
		_, err := Start(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "cp"), Addr: "127.41.7.7", Assets: a, Log: quiet()})
		assert.ErrorContains(t, err, "/no/such/")
	}
}
