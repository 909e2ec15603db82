package controlplanetest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// Cluster is a real API server with kinds in it and no controllers, as its
// administrator has it.
type Cluster struct {
	*controlplane.ControlPlane
	// Kubectl is the program's path.
	Kubectl string
	Dynamic dynamic.Interface
	Typed   kubernetes.Interface
}

// Cluster returns the control plane with these CRDs. It skips or fails as Get does.
func (s *Shared) Cluster(t testing.TB, crds ...[]byte) *Cluster {
	t.Helper()
	c := &Cluster{ControlPlane: s.Get(t), Kubectl: Assets(t).Kubectl}
	err := controlplane.InstallCRDs(t.Context(), c.RESTConfig(), crds...)
	if err == nil {
		c.Dynamic, err = dynamic.NewForConfig(c.RESTConfig())
	}
	if err == nil {
		c.Typed, err = kubernetes.NewForConfig(c.RESTConfig())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Run runs a program with the administrator's KUBECONFIG, and kubectl's path in
// KUBECTL. It returns what the program wrote to its two outputs.
func (c *Cluster) Run(in, program string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(in)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECTL="+c.Kubectl)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// Apply applies manifests with server-side apply, and takes over fields of other owners.
func (c *Cluster) Apply(t testing.TB, manifests string) {
	t.Helper()
	if _, errOut, err := c.Run(manifests, c.Kubectl, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, errOut)
	}
}

// Lease returns what the API server at config has under that name, nil when there
// is none.
func Lease(t testing.TB, config *rest.Config, namespace, name string) *coordinationv1.Lease {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(context.Background(), name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		t.Fatal(err)
	}
	return lease
}
