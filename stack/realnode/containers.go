package realnode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// criNamespace is where containerd keeps what kubelets see.
const criNamespace = "k8s.io"

// PauseImage is what holds a Pod's namespaces. It has to be imported.
const PauseImage = "docker.io/egress-proxies/pause:e2e"

// containerdConfig keeps to our folder. The native snapshotter copies where
// others mount: it works on every file system. restrict_oom_score_adj is for
// machines whose root lacks CAP_SYS_RESOURCE.
const containerdConfig = `version = 2
root = "%[1]s/containerd"
state = "%[1]s/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "%[1]s/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "` + PauseImage + `"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "` + cniDir + `"
    conf_dir = "%[1]s/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`

func (n *Node) startContainerd(ctx context.Context) error {
	for name, content := range map[string]string{
		"containerd.toml":   fmt.Sprintf(containerdConfig, n.dir),
		"cni/pods.conflist": conflist,
	} {
		path := filepath.Join(n.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return n.run(ctx, process.Command{
		Name: "containerd", Path: "containerd", Args: []string{"--config", filepath.Join(n.dir, "containerd.toml")},
	}, func(ctx context.Context) error { _, err := n.ctr(ctx, "version"); return err })
}

// ctr runs containerd's client.
func (n *Node) ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", filepath.Join(n.dir, "containerd.sock"), "--namespace", criNamespace}, args...)
	out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args[4:], " "), err, out)
	}
	return string(out), nil
}

// Import brings the images of a tar file to the node: there is no registry to
// pull them from.
func (n *Node) Import(ctx context.Context, path string) error {
	_, err := n.ctr(ctx, "images", "import", "--snapshotter", "native", path)
	return err
}

// PID returns the first process of a container, by the id that its Pod's status
// has, such as containerd://0123.
func (n *Node) PID(ctx context.Context, containerID string) (int, error) {
	id, ok := strings.CutPrefix(containerID, "containerd://")
	if !ok {
		return 0, fmt.Errorf("container id %q is not containerd's", containerID)
	}
	tasks, err := n.ctr(ctx, "tasks", "list")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(tasks, "\n") {
		var task, status string
		var pid int
		if _, err := fmt.Sscan(line, &task, &pid, &status); err == nil && task == id && status == "RUNNING" {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("container %s does not run", id)
}
