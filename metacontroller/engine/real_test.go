package engine

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// With these two set the end-to-end tests run against the real Metacontroller:
// its binary, and the YAML file of its CRDs. What passes there and fails here,
// or the other way round, is a bug of the engine.
const (
	realEnv     = "METACONTROLLER"
	realCRDsEnv = "METACONTROLLER_CRDS"
)

var compositeControllers = schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "compositecontrollers"}

// real reports whether the tests are to run against the real Metacontroller.
func real() bool { return os.Getenv(realEnv) != "" }

// runReal starts the real Metacontroller with our manifest.
func (c *cluster) runReal(workers int) (stop func()) {
	c.t.Helper()
	crds, err := os.ReadFile(os.Getenv(realCRDsEnv))
	require.NoError(c.t, err, "set "+realCRDsEnv)
	for _, document := range strings.Split(string(crds), "\n---\n") {
		if strings.Contains(document, "kind:") {
			require.NoError(c.t, controlplane.InstallCRDs(c.t.Context(), c.cp.RESTConfig(), []byte(document)))
		}
	}
	manifest, err := json.Marshal(c.manifest())
	require.NoError(c.t, err)
	controllers := c.api.Resource(compositeControllers)
	_, err = controllers.Create(c.t.Context(), parse(c.t, string(manifest)), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(c.t, err)

	log := filepath.Join(c.t.TempDir(), "metacontroller.log")
	running, err := process.Start(process.Command{
		Name: "metacontroller",
		Path: os.Getenv(realEnv),
		Args: []string{
			"--kubeconfig", c.cp.Kubeconfig(), "--workers", strconv.Itoa(workers), "--client-go-qps", "1000", "--client-go-burst", "1000",
			"--metrics-address", "0", "--health-probe-bind-address", "0", "--discovery-interval", "1s", "--zap-log-level", "4",
		},
		LogFile: log,
	})
	require.NoError(c.t, err)
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		require.NoError(c.t, controllers.Delete(context.Background(), "proxies", metav1.DeleteOptions{}))
		require.NoError(c.t, running.Stop(10*time.Second))
		if c.t.Failed() {
			text, _ := os.ReadFile(log)
			c.t.Log(string(text))
		}
	}
	c.t.Cleanup(stop)
	return stop
}
