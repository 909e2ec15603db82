package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	onnode "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/e2e"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/realnode"
)

const e2eIntro = `Runs the manifests with real Pods: etcd, kube-apiserver, controller manager,
kubelet, containerd and runc, in namespaces of their own on this machine, and walks
the steps of the demo there. Needs Linux, root, and Debian's packages containerd,
runc, containernetworking-plugins and iproute2. NetworkPolicies are not enforced.`

// e2eDirEnv is the folder of the inner process. Its mounts end with that process, and the outer
// process can remove the rest.
const e2eDirEnv = "PX_E2E_DIR"

// e2eOptions are the flags of e2e.
type e2eOptions struct {
	options
	images, manifests string
	ifPossible        bool
}

func parseE2E(args []string, out io.Writer) (*e2eOptions, error) {
	var o e2eOptions
	fs := flags.NewSet("stack e2e", e2eIntro, out)
	fs.StringVar(&o.binDir, "bin-dir", "", "`folder` of our programs; empty is the one that this program is in")
	fs.StringVar(&o.images, "images", "", "tar `file` of the images that the manifests name")
	fs.StringVar(&o.manifests, "manifests", "", "YAML `file` with the rendered overlay")
	fs.BoolVar(&o.ifPossible, "if-possible", false, "succeed, and print why, where no node can run")
	o.Logging.Register(fs, "warn", "text")
	if err := flags.Parse(fs, args); err != nil {
		return nil, err
	}
	err := o.validateCommon()
	if o.images == "" || o.manifests == "" {
		err = errors.Join(err, errors.New("--images and --manifests are required; make e2e makes both"))
	}
	return &o, err
}

// e2e builds what is needed outside, where the network is, and runs inside.
func e2e(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseE2E(args, out)
	if err != nil {
		return err
	}
	if realnode.Inside() {
		return insideE2E(ctx, o, out)
	}
	err = outsideE2E(ctx, append([]string{"e2e"}, args...), out)
	if o.ifPossible && errors.Is(err, realnode.ErrUnfit) {
		fmt.Fprintf(out, "SKIPPED: %v\n", err)
		return nil
	}
	return err
}

func outsideE2E(ctx context.Context, args []string, out io.Writer) error {
	if err := realnode.Check(); err != nil {
		return err
	}
	if _, err := controlplane.Ensure(ctx, out); err != nil {
		return err
	}
	if _, err := controlplane.EnsureNode(ctx, out); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "px-e2e-")
	if err != nil {
		return err
	}
	if err := realnode.Enter(ctx, args, []string{e2eDirEnv + "=" + dir}, out); err != nil {
		return fmt.Errorf("%w\nlogs are in %s", err, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	fmt.Fprintln(out, "Stopped everything; nothing is left.")
	return nil
}

func insideE2E(ctx context.Context, o *e2eOptions, out io.Writer) error {
	manifests, err := os.ReadFile(o.manifests)
	if err != nil {
		return fmt.Errorf("--manifests: %w", err)
	}
	assets, err := controlplane.Ensure(ctx, out)
	if err != nil {
		return err
	}
	nodeAssets, err := controlplane.EnsureNode(ctx, out)
	if err != nil {
		return err
	}
	dir := os.Getenv(e2eDirEnv)
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o755); err != nil {
		return err
	}
	return onnode.Run(ctx, onnode.Config{
		BinDir: o.binDir, Images: o.images, Manifests: manifests, Assets: assets, NodeAssets: nodeAssets,
		Dir: dir, Log: o.log, Progress: out,
	})
}
