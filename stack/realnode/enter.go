package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// insideEnv is set in the environment of the inner process.
const insideEnv = "PX_REALNODE_INSIDE"

// leaveGrace is how long the inner process may take to stop by itself.
const leaveGrace = 60 * time.Second

// ErrUnfit is wrapped by errors that explain why no node can run on this machine.
var ErrUnfit = errors.New("no real node can run here")

// programs that a node needs from the system, and the Debian packages that have
// them.
func programs() map[string]string {
	return map[string]string{"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2"}
}

// cniDir is where Debian's package containernetworking-plugins puts them.
const cniDir = "/usr/lib/cni"

// Check returns an error that wraps ErrUnfit when this machine lacks something.
func Check() error {
	var lacks []string
	if os.Geteuid() != 0 {
		lacks = append(lacks, "root")
	}
	for program, pkg := range programs() {
		if _, err := exec.LookPath(program); err != nil {
			lacks = append(lacks, fmt.Sprintf("%s (apt-get install %s)", program, pkg))
		}
	}
	if _, err := os.Stat(cniDir + "/bridge"); err != nil {
		lacks = append(lacks, cniDir+"/bridge (apt-get install containernetworking-plugins)")
	}
	if len(lacks) > 0 {
		return fmt.Errorf("%w: it lacks %s", ErrUnfit, strings.Join(lacks, ", "))
	}
	return nil
}

// Inside reports whether this process is the inner one, which may call Start.
func Inside() bool { return os.Getenv(insideEnv) == "1" }

// Enter runs this program again, with these arguments and more environment, in
// namespaces of its own (network, mounts, processes), and returns when it ends. What a kubelet
// changes on the whole machine, its sysctls, is put back afterwards.
func Enter(ctx context.Context, args, env []string, out io.Writer) error {
	if err := Check(); err != nil {
		return err
	}
	restore, err := saveSysctls()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(append(os.Environ(), insideEnv+"=1"), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = leaveGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w (see above)", err)
	} else if err != nil {
		err = fmt.Errorf("%w: make namespaces: %w", ErrUnfit, err)
	}
	return errors.Join(err, restore(), removeCgroups())
}

// isolate mounts what the inner process must not share with this machine.
func isolate() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// Where containerd and the network plugins keep what is fixed in their code.
	for _, dir := range []string{"/run/containerd", "/run/netns", "/var/lib/cni"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
		}
	}
	return nil
}
