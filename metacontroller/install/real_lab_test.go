package install_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// lab is the real Metacontroller, with the rights and flags of this folder, and our
// real hooks over TLS.
type lab struct {
	*cluster
	root   string // of the checkout
	v      variant
	host   string // of the hooks
	files  string // as webhooks has the Secrets mounted
	log    string
	denied float64

	mu    sync.Mutex
	calls []call
}

// call is one request that reached the hooks.
type call struct {
	path, token string
	tls         bool
	code        int
}

// realMetacontroller returns the program, or skips.
func realMetacontroller(t *testing.T) string {
	t.Helper()
	program := os.Getenv("METACONTROLLER")
	if program == "" {
		t.Skip("METACONTROLLER names no program; build Metacontroller 4.17.2 to run this")
	}
	return program
}

// labOptions differ from test to test.
type labOptions struct {
	// variant to install.
	variant string
	// without are the names of objects to leave out.
	without []string
	// cloudInitSecrets is the flag of webhooks.
	cloudInitSecrets bool
	// args are more arguments for Metacontroller.
	args []string
}

// newLab starts everything.
func newLab(t *testing.T, o labOptions) *lab {
	t.Helper()
	program, v := realMetacontroller(t), variants()[o.variant]
	l := &lab{cluster: newCluster(t), root: checkout(t, v.managed), v: v, files: t.TempDir(), log: filepath.Join(t.TempDir(), "metacontroller.log")}
	l.mustKubectl(t, "", "-n", accountNamespace, "delete", "leases", "--all")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.host = ln.Addr().String()
	l.apply(t, o.without...)
	l.serve(t, ln, o.cloudInitSecrets)
	l.denied = l.deniedRequests(t)
	l.start(t, program, o.args)
	return l
}

// apply installs the manifests of the checkout, with the hooks' real address, and
// mounts its Secrets.
func (l *lab) apply(t *testing.T, without ...string) {
	t.Helper()
	manifests := controlplanetest.EncodeManifests(t, controlplanetest.Kustomize(t, overlay(t, l.root, l.v)))
	here := strings.ReplaceAll(manifests, certs.DefaultOptions().Host(), l.host)
	var kept []*unstructured.Unstructured
	objects := controlplanetest.ParseManifests(t, []byte(here))
	for _, o := range objects {
		if !slices.Contains(without, o.GetName()) {
			kept = append(kept, o)
		}
	}
	l.mount(t, objects)
	l.Apply(t, controlplanetest.EncodeManifests(t, kept))
}

func (l *lab) mount(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() != "Secret" {
			continue
		}
		for key, value := range controlplanetest.Convert[corev1.Secret](t, o).Data {
			require.NoError(t, os.WriteFile(filepath.Join(l.files, key), value, 0o600))
		}
	}
}

// start runs Metacontroller with the Deployment's arguments and its account's
// token.
func (l *lab) start(t *testing.T, program string, args []string) {
	t.Helper()
	for _, arg := range deployment(t).Spec.Template.Spec.Containers[0].Args {
		arg = strings.ReplaceAll(arg, "$(POD_NAMESPACE)", accountNamespace)
		args = append(args, regexp.MustCompile(`-address=:\d+$`).ReplaceAllString(arg, "-address=127.0.0.1:0"))
	}
	p, err := process.Start(process.Command{
		Name: "metacontroller", Path: program, Args: args, LogFile: l.log,
		Env: []string{"KUBECONFIG=" + l.accountKubeconfig(t), "NO_PROXY=*", "HTTPS_PROXY=http://192.0.2.1:9"},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = p.Stop(10 * time.Second)
		if t.Failed() {
			t.Log(p.LogTail())
		}
	})
}

func (l *lab) logged(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(l.log)
	require.NoError(t, err)
	return string(content)
}

// deniedRequests counts the requests of all clients that no authorizer allowed. For
// those RBAC has no opinion, and apiserver_request_total does not count them.
func (c *cluster) deniedRequests(t *testing.T) float64 {
	t.Helper()
	body, err := c.Typed.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	require.NoError(t, err)
	total := 0.0
	for _, m := range regexp.MustCompile(`(?m)^authorization_attempts_total\{result="(?:denied|no-opinion)"\} (\S+)$`).FindAllStringSubmatch(string(body), -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		require.NoError(t, err)
		total += n
	}
	return total
}

// refused is how many requests were denied since the lab started. They are all
// Metacontroller's.
func (l *lab) refused(t *testing.T) float64 {
	t.Helper()
	return l.deniedRequests(t) - l.denied
}

func (l *lab) renew(t *testing.T, action certs.Action) {
	t.Helper()
	opts := certs.DefaultOptions()
	opts.Dir, opts.ExtraNames, opts.Action = filepath.Join(l.root, "metacontroller", "install", "tls"), []string{"127.0.0.1"}, action
	_, err := certs.Ensure(opts, time.Now())
	require.NoError(t, err)
}

// proxy makes a Proxy with more spec.
func (l *lab) proxy(t *testing.T, namespace, name, spec string) {
	t.Helper()
	l.Apply(t, "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: "+name+", namespace: "+namespace+"}\nspec: "+spec+"\n")
}

func (l *lab) phase(t *testing.T, namespace, name string) string {
	t.Helper()
	var proxy struct {
		Status struct{ Phase string }
	}
	out := l.mustKubectl(t, "", "-n", namespace, "get", "proxy", name, "-o", "yaml")
	require.NoError(t, yaml.Unmarshal([]byte(out), &proxy))
	return proxy.Status.Phase
}
