// Package upstreamtest gives tests the real Metacontroller.
package upstreamtest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// stopGrace is far beyond what a stop takes, for busy machines.
const stopGrace = 20 * time.Second

// Run drives c with the real Metacontroller until the test ends or stop is
// called, and then deletes c. When the test has failed by then, the end of its
// log is shown. o's kubeconfig is the control plane's.
func Run(t testing.TB, cp *controlplane.ControlPlane, c *metacontroller.Controller, o upstream.Options) (stop func()) {
	t.Helper()
	program := Program(t)
	if err := upstream.InstallKinds(t.Context(), cp.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if err := upstream.Apply(t.Context(), cp.RESTConfig(), c); err != nil {
		t.Fatal(err)
	}
	o.Kubeconfig = cp.Kubeconfig()
	log := filepath.Join(t.TempDir(), upstream.Name+".log")
	running, err := process.Start(process.Command{Name: upstream.Name, Path: program, Args: o.Args(), LogFile: log})
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := remove(cp, c.Name); err != nil {
			t.Errorf("delete CompositeController %s: %v", c.Name, err)
		}
		if err := running.Stop(stopGrace); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(running.LogTail())
		}
	})
	t.Cleanup(stop)
	return stop
}

func remove(cp *controlplane.ControlPlane, name string) error {
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	if err != nil {
		return err
	}
	return client.Resource(upstream.ControllerResource()).Delete(context.Background(), name, metav1.DeleteOptions{})
}

// Program returns the path of the real Metacontroller's binary, and skips the
// test when METACONTROLLER is not set.
func Program(t testing.TB) string {
	t.Helper()
	name := os.Getenv(upstream.ProgramEnv)
	if name == "" {
		t.Skipf("needs the real Metacontroller: %s names no binary; build Metacontroller 4.17.2 to run this", upstream.ProgramEnv)
	}
	path, err := upstream.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
