package controlplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
)

const (
	// ownModule is the first line of the go.mod that marks our checkout.
	ownModule = "module gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator\n"

	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
	versionPackage   = "k8s.io/component-base/version"
)

// source is a Go module of ours that pins one program's version.
type source struct {
	dir     string // of its go.mod
	version string // of the module that the program is in, such as v1.36.3
	digest  []byte // of go.mod and go.sum
}

// findSource reads the module in a sub-folder of this package, in the checkout that this program is
// run in or was built in. Each program has its own go.mod because their dependencies do not agree
// with one another's or ours.
func findSource(folder, module string) (source, error) {
	root, err := checkout(startingPoints()...)
	if err != nil {
		return source{}, err
	}
	return readSource(filepath.Join(root, "stack", "controlplane", folder), module)
}

// startingPoints are where to look for our checkout from, upwards: the working
// directory, and the running program's own folder, which is the checkout's bin/ or
// Go's temporary folder.
func startingPoints() []string {
	var from []string
	if wd, err := os.Getwd(); err == nil {
		from = append(from, wd)
	}
	if exe, err := os.Executable(); err == nil {
		from = append(from, filepath.Dir(exe))
	}
	return from
}

func checkout(from ...string) (string, error) {
	for _, dir := range from {
		if root, ok := checkoutAbove(dir); ok {
			return root, nil
		}
	}
	return "", fmt.Errorf("the Go modules that the control plane is built from are not above %v: run this inside a checkout of the project, or set %s to a folder with %s, %s and %s",
		from, AssetsEnv, Etcd, APIServer, kubectlBinary)
}

func checkoutAbove(dir string) (string, bool) {
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.Contains(append([]byte("\n"), content...), []byte("\n"+ownModule)) {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

func readSource(dir, module string) (source, error) {
	mod, modErr := os.ReadFile(filepath.Join(dir, "go.mod"))
	sum, sumErr := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err := errors.Join(modErr, sumErr); err != nil {
		return source{}, fmt.Errorf("read the pinned version of %s: %w", module, err)
	}
	version, ok := requiredVersion(mod, module)
	if !ok {
		return source{}, fmt.Errorf("%s requires no version of %s", filepath.Join(dir, "go.mod"), module)
	}
	digest := sha256.Sum256(append(mod, sum...))
	return source{dir: dir, version: version, digest: digest[:]}, nil
}

// requiredVersion finds the version of module in a require directive of a go.mod
// file, in a block or alone.
func requiredVersion(mod []byte, module string) (string, bool) {
	require := regexp.MustCompile(`(?m)^(?:require)?[ \t]+` + regexp.QuoteMeta(module) + `[ \t]+(v[0-9A-Za-z.+-]+)`)
	match := require.FindSubmatch(mod)
	if match == nil {
		return "", false
	}
	return string(match[1]), true
}

// key names the folder of one build: another version of anything that goes into
// the programs gives another folder. The Go release is left out on purpose: an
// upgraded compiler is no reason to build for minutes.
func key(kubernetes, etcd source) string {
	digest := sha256.Sum256(slices.Concat(kubernetes.digest, etcd.digest))
	return fmt.Sprintf("kubernetes-%s-etcd-%s-%s-%s-%s", kubernetes.version, etcd.version, runtime.GOOS, runtime.GOARCH, hex.EncodeToString(digest[:4]))
}
