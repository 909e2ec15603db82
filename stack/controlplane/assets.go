package controlplane

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// AssetsEnv names a folder with etcd, kube-apiserver and kubectl, which
	// then are used and nothing is built. It is envtest's variable.
	AssetsEnv = "KUBEBUILDER_ASSETS"
	// CacheEnv names the folder to build into, in place of the user's cache
	// folder.
	CacheEnv = "PX_CACHE_DIR"

	// oldestKubernetes is the oldest release that is used from PATH. CEL rules in CRDs are stable
	// since 1.29; one more release for early bugs.
	oldestKubernetes = "1.30.0"
	versionTimeout   = 20 * time.Second // bounds one run of kube-apiserver --version
)

// The file names of the programs; the first two are also the names of the Parts.
const (
	Etcd          = "etcd"
	APIServer     = "kube-apiserver"
	kubectlBinary = "kubectl"
)

// ErrNotBuilt is returned by Locate when the programs have to be built first.
var ErrNotBuilt = errors.New("the control plane is not built yet")

// Assets are the programs of a control plane, as absolute paths.
type Assets struct {
	Etcd      string // the etcd server
	APIServer string // kube-apiserver
	Kubectl   string // the command line client
	Origin    string // describes, for messages, where they were found
}

// Locate finds the programs without building: in the folder AssetsEnv when that
// is set, else in PATH when all are there and recent enough, else in the cache
// folder. It returns an error that wraps ErrNotBuilt when they would have to be
// built.
func Locate(ctx context.Context) (Assets, error) {
	if dir := os.Getenv(AssetsEnv); dir != "" {
		return fromEnv(ctx, dir)
	}
	assets, pathErr := fromPath(ctx)
	if pathErr == nil {
		return assets, nil
	}
	cache, err := openCache()
	if err != nil {
		return Assets{}, errors.Join(pathErr, err)
	}
	if assets, ok := cache.assets(); ok {
		return assets, nil
	}
	return Assets{}, fmt.Errorf("%w: %s is not set, %w, and %s does not hold them; run make assets", ErrNotBuilt, AssetsEnv, pathErr, cache.dir)
}

// Ensure is Locate, and builds what is missing, which takes minutes the first time. progress
// receives a line per step.
func Ensure(ctx context.Context, progress io.Writer) (Assets, error) {
	assets, err := Locate(ctx)
	if !errors.Is(err, ErrNotBuilt) {
		return assets, err
	}
	cache, err := openCache()
	if err != nil {
		return Assets{}, err
	}
	if err := newBuilder(cache, progress).build(ctx); err != nil {
		return Assets{}, err
	}
	assets, ok := cache.assets()
	if !ok {
		return Assets{}, fmt.Errorf("%s was built and is incomplete again; is something cleaning it up?", cache.dir)
	}
	return assets, nil
}

// fromEnv takes an explicit choice: a fault in it is an error, not a reason to search elsewhere.
func fromEnv(ctx context.Context, dir string) (Assets, error) {
	assets, missing := inFolder(dir)
	if len(missing) > 0 {
		return Assets{}, fmt.Errorf("%s=%s lacks %s: put the programs there, or unset it to have them built", AssetsEnv, dir, strings.Join(missing, ", "))
	}
	if err := checkVersion(ctx, assets.APIServer); err != nil {
		return Assets{}, fmt.Errorf("%s=%s: %w", AssetsEnv, dir, err)
	}
	assets.Origin = AssetsEnv
	return assets, nil
}

func fromPath(ctx context.Context) (Assets, error) {
	assets, missing := inFolder("")
	if len(missing) > 0 {
		return Assets{}, fmt.Errorf("PATH lacks %s", strings.Join(missing, ", "))
	}
	if err := checkVersion(ctx, assets.APIServer); err != nil {
		return Assets{}, fmt.Errorf("in PATH: %w", err)
	}
	assets.Origin = "PATH"
	return assets, nil
}

// inFolder returns the programs of dir, of PATH when dir is empty, and the names of those that are
// not there as executable files.
func inFolder(dir string) (assets Assets, missing []string) {
	if abs, err := filepath.Abs(dir); err == nil && dir != "" {
		dir = abs
	}
	find := func(binary string) string {
		path, err := exec.LookPath(filepath.Join(dir, binary))
		if err != nil {
			missing = append(missing, binary)
		}
		return path
	}
	return Assets{Etcd: find(Etcd), APIServer: find(APIServer), Kubectl: find(kubectlBinary)}, missing
}

func checkVersion(ctx context.Context, apiServer string) error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, apiServer, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", apiServer, err)
	}
	found, err := parseVersion(string(out))
	if err != nil {
		return fmt.Errorf("%s --version: %w", apiServer, err)
	}
	if !found.AtLeast(version.MustParseGeneric(oldestKubernetes)) {
		return fmt.Errorf("%s is v%s, older than v%s", apiServer, found, oldestKubernetes)
	}
	return nil
}

// parseVersion reads what kube-apiserver --version prints: "Kubernetes v1.36.3".
func parseVersion(out string) (*version.Version, error) {
	fields := strings.Fields(out)
	if len(fields) < 2 || fields[0] != "Kubernetes" {
		return nil, fmt.Errorf("got %.60q instead of a line such as Kubernetes v1.36.3", out)
	}
	v, err := version.ParseGeneric(fields[1])
	if err != nil {
		return nil, fmt.Errorf("read %.60q: %w", out, err)
	}
	return v, nil
}

const (
	kubeletBinary    = "kubelet"
	controllerBinary = "kube-controller-manager"
	schedulerBinary  = "kube-scheduler"
)

// NodeAssets are the programs that a real node needs beside a control plane, as
// absolute paths.
type NodeAssets struct {
	Kubelet           string // runs Pods
	ControllerManager string // makes Pods of Deployments, and service accounts
	Scheduler         string // gives Pods their node
}

// EnsureNode finds a node's programs in the cache folder, or builds them, which takes minutes the
// first time. progress receives a line per step.
func EnsureNode(ctx context.Context, progress io.Writer) (NodeAssets, error) {
	src, err := findSource("kubelet", kubernetesModule)
	if err != nil {
		return NodeAssets{}, err
	}
	c, err := newCache(fmt.Sprintf("node-%s-%s-%s", src.version, runtime.GOARCH, hex.EncodeToString(src.digest[:4])),
		"kubelet, controller manager and scheduler", src.kubernetes(controllerBinary, schedulerBinary, kubeletBinary))
	if err != nil {
		return NodeAssets{}, err
	}
	if err := newBuilder(c, progress).build(ctx); err != nil {
		return NodeAssets{}, err
	}
	return NodeAssets{Kubelet: c.path(kubeletBinary), ControllerManager: c.path(controllerBinary), Scheduler: c.path(schedulerBinary)}, nil
}
