// Package manifests_test checks the manifests of this folder against our processes and a
// real API server.
package manifests_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// shared is the API server of this package's tests.
var shared controlplanetest.Shared

// removeAtEnd are folders that outlive their test.
var removeAtEnd []string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range removeAtEnd {
		_ = os.RemoveAll(dir)
	}
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// cluster is a real API server with all kinds and no controllers.
type cluster struct{ *controlplanetest.Cluster }

// kinds are installed once: the API server is the package's.
var kinds struct {
	once sync.Once
	err  error
}

// newCluster returns the package's API server. After the test, nothing that was
// left in the two namespaces disturbs the next one.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{shared.Cluster(t)}
	kinds.once.Do(func() { kinds.err = installKinds(t, c) })
	require.NoError(t, kinds.err)
	// The claims of a StatefulSet are immutable: it can only be deleted with them.
	t.Cleanup(func() { c.deleteAll(t, "deployments.apps", "statefulsets.apps") })
	return c
}

func installKinds(t *testing.T, c *cluster) error {
	t.Helper()
	foreign, err := os.ReadFile("testdata/foreign-crds.yaml")
	require.NoError(t, err)
	manifests := crd.Manifests()
	for doc := range strings.SplitSeq(string(foreign), "\n---\n") {
		manifests = append(manifests, []byte(doc))
	}
	if err := controlplane.InstallCRDs(t.Context(), c.RESTConfig(), manifests...); err != nil {
		return err
	}
	return upstream.InstallKinds(t.Context(), c.RESTConfig())
}

// run runs kubectl as the administrator.
func (c *cluster) run(in string, args ...string) (string, string, error) {
	return c.Run(in, c.Kubectl, args...)
}

// apply applies manifests as `kubectl apply --server-side --force-conflicts` does,
// without starting kubectl for each call.
func (c *cluster) apply(t *testing.T, all objects) {
	t.Helper()
	for _, o := range all {
		gvr, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		_, err := c.Dynamic.Resource(gvr).Namespace(o.GetNamespace()).Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
		require.NoError(t, err, "%s %s", o.GetKind(), o.GetName())
	}
}

// deleteAll deletes the objects of these resources in both namespaces.
func (c *cluster) deleteAll(t *testing.T, resources ...string) {
	t.Helper()
	for _, resource := range resources {
		gr := schema.ParseGroupResource(resource)
		version := "v1"
		if gr.Group == v1alpha1.Group {
			version = v1alpha1.Version
		}
		for _, namespace := range []string{system, fleet} {
			err := c.Dynamic.Resource(gr.WithVersion(version)).Namespace(namespace).DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{})
			assert.NoError(t, err, resource)
		}
	}
}

// namespaces applies the two Namespaces with their labels and nothing else,
// which everything else needs to be tried.
func (c *cluster) namespaces(t *testing.T, all objects) {
	t.Helper()
	c.apply(t, all.ofKind("Namespace"))
	for _, namespace := range []string{system, fleet} {
		require.NoError(t, controlplane.EnsureServiceAccount(t.Context(), c.Typed, namespace))
	}
}

// patience is the timeout on a busy machine.

// daemon is one of our programs, run with the flags of its container.
type daemon struct {
	programtest.Output
	stop func()
}

// startContainer runs a container of a workload until the test ends. flags replace those
// of the manifest that depend on a Pod: addresses, mounted files.
func startContainer(t *testing.T, c corev1.Container, flags map[string]string, env ...string) *daemon {
	t.Helper()
	all := flagsOf(t, c)
	maps.Copy(all, flags)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] == "" {
			args = append(args, "--"+name)
			continue
		}
		args = append(args, "--"+name+"="+all[name])
	}
	d := &daemon{}
	cmd := exec.Command(program(t, c.Name), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &d.Output, &d.Output
	require.NoError(t, cmd.Start())
	d.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		assert.NoError(t, cmd.Wait(), "%s ends in order: %s", c.Name, &d.Output)
	})
	t.Cleanup(d.stop)
	return d
}

// container returns a container of a workload by name.
func (all objects) container(t *testing.T, workload, name string) corev1.Container {
	t.Helper()
	for _, c := range podSpec(t, all.workloads().named(t, workload)).Containers {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "no such container", "%s of %s", name, workload)
	return corev1.Container{}
}

// scratch is a folder for all tests of this package.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "manifests-*")
	require.NoError(t, err)
	removeAtEnd = append(removeAtEnd, dir)
	return dir
}

func intText(i int32) string { return strconv.Itoa(int(i)) }

// flagsOf returns a container's flags by name. Other arguments fail the test.
func flagsOf(t *testing.T, c corev1.Container) map[string]string {
	t.Helper()
	flags := map[string]string{}
	for _, arg := range c.Args {
		name, found := strings.CutPrefix(arg, "--")
		require.True(t, found, "%s: %s", c.Name, arg)
		name, value, _ := strings.Cut(name, "=")
		require.NotContains(t, flags, name, c.Name)
		flags[name] = value
	}
	return flags
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// program builds our processes, once, and returns the path of one.
func program(t *testing.T, name string) string {
	t.Helper()
	built.once.Do(func() {
		built.dir = scratch(t)
		built.err = programtest.Build(built.dir, "../cmd/webhooks", "../cmd/prober", "../cmd/discovery", "../cmd/cloud")
	})
	require.NoError(t, built.err)
	return filepath.Join(built.dir, name)
}
